"""The vectorised reading of the CDF against numpy's own interpolation, row by row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghostless.contract.distribution import LEAST_MASS, atoms, exceedance, heights_at, quantile, quantiles

KNOTS = np.array([-1.0, 0.0, 0.5, 2.0, 3.0, 7.0], dtype=np.float32)


def _cdf(rows: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    steps = random.dirichlet(np.full(len(KNOTS) - 1, 0.7), rows)
    cdf = np.concatenate([np.zeros((rows, 1)), np.cumsum(steps, axis=1)], axis=1)
    cdf[:, -1] = 1.0
    return cdf.astype(np.float32)


@given(
    st.integers(1, 40), st.integers(0, 1000), st.lists(st.floats(2**-10, 1 - 2**-10, width=32), min_size=1, max_size=12)
)
def test_quantiles_invert_the_cdf(rows: int, seed: int, levels: list[float]) -> None:
    cdf = _cdf(rows, seed)
    values = quantiles(cdf, KNOTS, np.array(levels, np.float32))
    assert values.shape == (rows, len(levels))
    for row in range(rows):
        # Where the CDF is almost flat its inverse is ill-conditioned, so the comparison is made on the level's side.
        # Segments with less than LEAST_MASS are crossed as if they had it.
        assert np.interp(values[row], KNOTS, cdf[row]) == pytest.approx(levels, abs=LEAST_MASS + 2e-5)
        exact = quantiles(cdf, KNOTS, np.array(levels, np.float32), least_mass=0.0)
        assert np.interp(exact[row], KNOTS, cdf[row]) == pytest.approx(levels, abs=2e-5)


@given(st.integers(1, 20), st.integers(0, 1000))
def test_quantiles_never_cross(rows: int, seed: int) -> None:
    wobbly = _cdf(rows, seed) + np.random.default_rng(seed).normal(0, 1e-3, (rows, len(KNOTS))).astype(np.float32)
    values = quantiles(wobbly, KNOTS, np.linspace(0.01, 0.99, 50, dtype=np.float32))
    assert (np.diff(values, axis=1) >= 0).all()


def test_many_levels_go_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    cdf, levels = _cdf(50, 1), np.linspace(0.01, 0.99, 33, dtype=np.float32)
    whole = quantiles(cdf, KNOTS, levels)
    monkeypatch.setattr("ghostless.contract.distribution._BLOCK_BYTES", 700)
    np.testing.assert_array_equal(quantiles(cdf, KNOTS, levels), whole)
    np.testing.assert_array_equal(quantile(cdf, KNOTS, float(levels[4])), whole[:, 4])


@given(
    st.integers(1, 20),
    st.integers(0, 1000),
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=8),
)
def test_exceedance_is_one_minus_the_cdf(rows: int, seed: int, thresholds: list[float]) -> None:
    cdf = _cdf(rows, seed)
    above = exceedance(cdf, KNOTS, np.array(thresholds, np.float32))
    for row in range(rows):
        expected = 1 - np.interp(np.array(thresholds, np.float32), KNOTS, cdf[row])
        np.testing.assert_allclose(above[row], expected, atol=2e-6)


def test_a_flat_stretch_and_a_jump_stay_inside_the_knots() -> None:
    cdf = np.array([[0, 0, 0, 1, 1, 1], [0, 0.5, 0.5, 0.5, 0.5, 1]], np.float32)
    values = quantiles(cdf, KNOTS, np.array([0.25, 0.5, 0.75], np.float32))
    assert np.isfinite(values).all()
    assert values[0] == pytest.approx([0.875, 1.25, 1.625])
    assert values[1][0] == pytest.approx(-0.5)
    assert values[1][2] == pytest.approx(5.0)


ATOMIC = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 3.0], np.float32)
ATOMIC_CDF = np.array([[0.0, 0.3, 0.4, 0.6, 0.6, 0.8, 1.0], [0.0, 0.0, 0.5, 0.5, 0.9, 0.9, 1.0]], np.float32)


def _sample(row: int, count: int) -> np.ndarray:
    """Draws by the definition: pick a segment by its mass, then a value uniform inside it."""
    random = np.random.default_rng(row)
    masses = np.diff(ATOMIC_CDF[row].astype(float))
    segment = random.choice(len(masses), count, p=masses / masses.sum())
    return ATOMIC[segment] + random.random(count) * (ATOMIC[segment + 1] - ATOMIC[segment])


@pytest.mark.parametrize("row", [0, 1])
def test_with_atoms_everything_agrees_with_sampling(row: int) -> None:
    drawn, points = _sample(row, 200_000), np.array([-1.0, 0.0, 0.4, 1.0, 1.5, 2.5, 3.0, 4.0], np.float32)
    cdf = ATOMIC_CDF[row : row + 1]
    at = [(drawn <= point).mean() for point in points]
    assert heights_at(cdf, ATOMIC, points)[0] == pytest.approx(at, abs=0.005)
    assert heights_at(cdf, ATOMIC, points, "before")[0] == pytest.approx(
        [(drawn < t).mean() for t in points], abs=0.005
    )
    assert exceedance(cdf, ATOMIC, points)[0] == pytest.approx([(drawn > t).mean() for t in points], abs=0.005)
    values, masses = atoms(cdf, ATOMIC)
    assert masses[0] == pytest.approx([(drawn == value).mean() for value in values], abs=0.005)


def test_a_level_inside_an_atom_gives_its_value_exactly() -> None:
    values = quantiles(ATOMIC_CDF, ATOMIC, np.array([0.01, 0.3, 0.35, 0.45, 0.59, 0.95], np.float32))
    assert values[0] == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0, 3.0], abs=1e-6)
    assert values[0, 3] == values[0, 4] == 1.0


def test_a_level_at_a_flat_stretch_is_the_smallest_value_that_reaches_it() -> None:
    assert quantiles(ATOMIC_CDF[:1], ATOMIC, np.array([0.6], np.float32))[0, 0] == 1.0
