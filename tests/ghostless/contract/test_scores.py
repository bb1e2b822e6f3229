import itertools

import numpy as np
import pytest
import scoringrules
from scipy import integrate, stats

from ghostless.contract import scores
from ghostless.contract.scores import bucket_edges, bucket_masses, bucket_nll, cdf_at, crps, log_score, pit
from learning import metrics

LOW, HIGH = 0.0, 3.0


def random_distributions(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """heights [n, k], knots [k] that are not equally spaced, y [n] with some on the ends and on knots."""
    random = np.random.default_rng(seed)
    knots = np.concatenate([[LOW], np.sort(random.uniform(LOW, HIGH, k - 2)), [HIGH]])
    heights = np.concatenate([[np.zeros(n)], np.sort(random.uniform(size=(k - 2, n)), axis=0), [np.ones(n)]]).T
    y = random.uniform(LOW, HIGH, n)
    y[:3], y[3:6], y[6:9] = LOW, HIGH, knots[4]
    return heights, knots, y


def test_a_case_worked_by_hand() -> None:
    """F rises from 0 to 0.5 over [0, 1] and to 1 over [1, 3]; y = 2, so F(y) = 0.75.

    Left of y: F^2 is t^2/4 on [0, 1], 1/12, and (0.25 + t/4)^2 on [1, 2]: 4/3 (0.75^3 - 0.5^3) = 0.395833.
    Right of it (1 - F)^2 on [2, 3]: 4/3 0.25^3 = 0.0208333. The bucket of y is [1.8, 2.1): 0.3 x 0.25 = 0.075.
    """
    heights, knots, y = np.array([[0.0, 0.5, 1.0]]), np.array([0.0, 1.0, 3.0]), np.array([2.0])
    assert cdf_at(heights, knots, y) == pytest.approx([0.75], abs=1e-12)
    assert crps(heights, knots, y) == pytest.approx([1 / 12 + 0.3958333333333 + 0.0208333333333], abs=1e-9)
    assert bucket_nll(heights, knots, y, 0.0, 3.0) == pytest.approx([-np.log(0.075)], abs=1e-6)


def test_the_same_figures_as_learning() -> None:
    heights, knots, y = random_distributions(500, 23)
    assert cdf_at(heights, knots, y) == pytest.approx(metrics.pit(heights, knots, y), abs=1e-9)
    assert crps(heights, knots, y) == pytest.approx(metrics.crps(heights, knots, y), abs=1e-9)
    edges = metrics.uniform_edges(LOW, HIGH)
    masses = np.diff([cdf_at(heights, knots, np.full(len(y), edge)) for edge in edges], axis=0).T
    offline = metrics.discretised_nll(masses, y, edges)
    assert bucket_nll(heights, knots, y, LOW, HIGH).mean() == pytest.approx(offline, abs=1e-5)


def test_crps_of_a_uniform_distribution_is_scoringrules() -> None:
    y = np.linspace(LOW, HIGH, 31)
    heights = np.tile([0.0, 0.2, 1.0], (31, 1))
    ours = crps(heights, np.array([LOW, LOW + 0.2 * (HIGH - LOW), HIGH]), y)
    assert ours == pytest.approx(scoringrules.crps_uniform(y, LOW, HIGH), abs=1e-6)


def test_crps_is_the_integral_it_is_defined_by() -> None:
    heights, knots, y = random_distributions(12, 9, seed=3)
    for row in range(len(y)):
        pieces = [
            integrate.quad(lambda t, row=row, over=over: (np.interp(t, knots, heights[row]) - over) ** 2, *ends)[0]
            for ends in itertools.pairwise(np.unique([*knots, y[row]]))
            for over in [float(ends[0] >= y[row])]
        ]
        assert crps(heights, knots, y)[row] == pytest.approx(sum(pieces), abs=1e-6)


def test_knots_of_each_row_may_coincide() -> None:
    """A distribution known by its quantiles, two of them equal: half of the mass sits on 1."""
    knots = np.array([[0.0, 1.0, 1.0, 3.0]])
    heights = np.array([[0.0, 0.25, 0.75, 1.0]])
    assert cdf_at(heights, knots, np.array([1.0]))[0] == pytest.approx(0.75)
    assert cdf_at(heights, knots, np.array([3.0]))[0] == pytest.approx(1.0)
    # Left: (t/4)^2 over [0, 1]; right: (0.25 - (t - 1)/8)^2 over [1, 3].
    assert crps(heights, knots, np.array([1.0]))[0] == pytest.approx(1 / 48 + 2 * 0.25**2 / 3)


def test_a_bucket_without_mass_is_no_infinity() -> None:
    heights, knots = np.array([[0.0, 1.0, 1.0]]), np.array([0.0, 1.0, 3.0])
    assert bucket_nll(heights, knots, np.array([2.5]), 0.0, 3.0)[0] == pytest.approx(-np.log(1e-12))


def atomic(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """heights [n, k] on knots with atoms at both ends and at 1.2, an edge of the ten buckets."""
    third = float(np.float32(1.2))
    knots = np.array([0.0, 0.0, 0.4, third, third, 2.0, 3.0, 3.0])
    masses = np.random.default_rng(seed).dirichlet(np.ones(len(knots) - 1), n)
    heights = np.concatenate([np.zeros((n, 1)), np.cumsum(masses, 1)], 1)
    heights[:, -1] = 1.0
    return heights, knots


def drawn(heights: np.ndarray, knots: np.ndarray, count: int, seed: int) -> np.ndarray:
    """[n, count] by the definition: a segment by its mass, uniform inside."""
    random = np.random.default_rng(seed)
    segment = np.stack([random.choice(len(knots) - 1, count, p=np.diff(row)) for row in heights])
    return knots[segment] + random.random(segment.shape) * np.diff(knots)[segment]


def test_scores_with_atoms_agree_with_sampling() -> None:
    heights, knots = atomic(6)
    sample = drawn(heights, knots, 40_000, seed=1)
    third = knots[3]
    for y in (0.0, 0.2, third, 1.9, 3.0):
        truth = np.full(len(heights), y)
        before, at = pit(heights, knots, truth)
        assert before == pytest.approx((sample < y).mean(1), abs=0.012)
        assert at == pytest.approx((sample <= y).mean(1), abs=0.012)
        # CRPS = E|X - y| - E|X - X'| / 2.
        other = sample[:, ::-1]
        expected = np.abs(sample - y).mean(1) - 0.5 * np.abs(sample - other).mean(1)
        assert crps(heights, knots, truth) == pytest.approx(expected, abs=0.02)
        edges = bucket_edges(0.0, 3.0)
        bucket = min(int(np.searchsorted(edges, y, side="right")) - 1, 9)
        upper = sample <= edges[10] if bucket == 9 else sample < edges[bucket + 1]
        share = ((sample >= edges[bucket]) & upper).mean(1)
        assert np.exp(-bucket_nll(heights, knots, truth, 0.0, 3.0)) == pytest.approx(share, abs=0.012)


def test_the_randomised_pit_of_the_true_distribution_is_uniform() -> None:
    heights, knots = atomic(4000, seed=2)
    y = drawn(heights, knots, 1, seed=3)[:, 0]
    before, at = pit(heights, knots, y)
    u = before + np.random.default_rng(4).random(len(y)) * (at - before)
    assert stats.kstest(u, "uniform").pvalue > 0.001
    # Without the draw an atom's rows all sit on one side: the plain PIT is far from uniform.
    assert stats.kstest(at, "uniform").pvalue < 1e-6


def test_bucket_masses_sum_to_one_and_put_an_atom_on_an_edge_above_it() -> None:
    heights, knots = atomic(5)
    masses = bucket_masses(heights, knots, bucket_edges(0.0, 3.0))
    assert masses.sum(1) == pytest.approx(np.ones(5))
    assert (masses[:, 4] >= heights[:, 4] - heights[:, 3]).all()


def test_the_log_score_is_an_atoms_mass_or_the_density() -> None:
    heights, knots = np.array([[0.0, 0.2, 0.5, 0.9, 1.0]]), np.array([0.0, 0.0, 2.0, 2.0, 3.0])
    for y, expected in ((0.0, 0.2), (1.0, 0.15), (2.0, 0.4), (2.5, 0.1)):
        assert np.exp(-log_score(heights, knots, np.array([y]))) == pytest.approx(expected)


def test_cells_meet_halfway_and_leave_atoms_alone() -> None:
    knots = np.array([0.0, 1.0, 1.0, 4.0])
    below, above = scores.cells(knots, np.array([2.0, 1.0, 0.5, 2.0, 3.0]))
    np.testing.assert_allclose(below, [1.5, 1.0, 0.0, 1.5, 2.5])
    np.testing.assert_allclose(above, [2.5, 1.0, 0.75, 2.5, 4.0])


def test_values_on_a_lattice_have_a_uniform_pit() -> None:
    """Tenths of a unit under a density that is right: F alone has ten lumps, over their cells there is none."""
    random = np.random.default_rng(0)
    y = np.round(random.uniform(0.0, 1.0, 20_000), 1)
    knots, heights = np.array([0.0, 0.5, 1.0]), np.tile([0.0, 0.5, 1.0], (len(y), 1))
    low, high = scores.cell_pit(heights, knots, *scores.cells(knots, y))
    pit = low + random.random(len(y)) * (high - low)
    grid = np.linspace(0.05, 0.95, 37)
    np.testing.assert_allclose([np.mean(pit <= u) for u in grid], grid, atol=0.015)
    before, after = scores.pit(heights, knots, y)
    assert max(abs(np.mean(after <= u) - u) for u in grid) > 0.04
    np.testing.assert_array_equal(before, after)


def test_cells_of_an_atom_hold_its_mass_and_no_neighbours() -> None:
    knots = np.array([0.0, 1.0, 1.0, 2.0])
    heights = np.tile([0.0, 0.25, 0.75, 1.0], (3, 1))
    low, high = scores.cell_pit(heights, knots, *scores.cells(knots, np.array([0.5, 1.0, 1.5])))
    np.testing.assert_allclose(low, [0.0, 0.25, 0.8125])
    np.testing.assert_allclose(high, [0.1875, 0.75, 1.0])
