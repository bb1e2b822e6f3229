import itertools

import numpy as np
import pytest
import scoringrules
from scipy import integrate

from ghostless.contract.scores import bucket_nll, cdf_at, crps
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
    assert bucket_nll(heights, knots, y, 0.0, 3.0) == pytest.approx([-np.log(0.075)], abs=1e-9)


def test_the_same_figures_as_learning() -> None:
    heights, knots, y = random_distributions(500, 23)
    assert cdf_at(heights, knots, y) == pytest.approx(metrics.pit(heights, knots, y), abs=1e-9)
    assert crps(heights, knots, y) == pytest.approx(metrics.crps(heights, knots, y), abs=1e-9)
    edges = metrics.uniform_edges(LOW, HIGH)
    masses = np.diff([cdf_at(heights, knots, np.full(len(y), edge)) for edge in edges], axis=0).T
    offline = metrics.discretised_nll(masses, y, edges)
    assert bucket_nll(heights, knots, y, LOW, HIGH).mean() == pytest.approx(offline, abs=1e-9)


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
