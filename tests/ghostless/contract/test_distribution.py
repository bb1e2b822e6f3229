"""The vectorised reading of the CDF against numpy's own interpolation, row by row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ghostless.contract.distribution import draws, exceedance, quantile, quantiles

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
        assert np.interp(values[row], KNOTS, cdf[row]) == pytest.approx(levels, abs=2e-5)


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


def test_draws_follow_the_distribution_and_the_seed() -> None:
    cdf = np.repeat(_cdf(1, 3), 20_000, axis=0)
    sample = draws(cdf, KNOTS, seed=5)
    np.testing.assert_array_equal(sample, draws(cdf, KNOTS, seed=5))
    assert (sample != draws(cdf, KNOTS, seed=6)).any()
    assert stats.kstest(sample, lambda y: np.interp(y, KNOTS, cdf[0])).pvalue > 0.001


def test_a_flat_stretch_and_a_jump_stay_inside_the_knots() -> None:
    cdf = np.array([[0, 0, 0, 1, 1, 1], [0, 0.5, 0.5, 0.5, 0.5, 1]], np.float32)
    values = quantiles(cdf, KNOTS, np.array([0.25, 0.5, 0.75], np.float32))
    assert np.isfinite(values).all()
    assert values[0] == pytest.approx([0.875, 1.25, 1.625])
    assert values[1][0] == pytest.approx(-0.5)
    assert values[1][2] == pytest.approx(5.0)
