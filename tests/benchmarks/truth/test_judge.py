"""The judge against distributions whose scores are known in closed form or by sampling."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from benchmarks.truth.judge import (
    LEVELS,
    Forecast,
    bucket_masses,
    bucket_of,
    coverage,
    crps,
    discretised_nll,
    expected_calibration_error,
    judge,
    kolmogorov_smirnov,
    pinball_crps,
    randomised_pit,
)

Floats = NDArray[np.float64]

# 0 with 0.2, uniform on (0, 1) with 0.3, 1 with 0.1, uniform on (1, 3) with 0.25, 3 with 0.15.
KNOTS = np.array([0.0, 0.0, 1.0, 1.0, 3.0, 3.0])
HEIGHTS = np.array([0.0, 0.2, 0.5, 0.6, 0.85, 1.0])


def draws(rows: int, seed: int = 0) -> Floats:
    """From the distribution with three atoms above."""
    random = np.random.default_rng(seed)
    u, inside = random.random(rows), random.random(rows)
    return np.select([u < 0.2, u < 0.5, u < 0.6, u < 0.85], [0.0, inside, 1.0, 1.0 + 2.0 * inside], 3.0)


def with_atoms(y: Floats) -> Forecast:
    rows = len(y)
    return Forecast(KNOTS, np.tile(HEIGHTS, (rows, 1)), np.full(rows, 1.0), y)


def normal_forecast(y: Floats, centre: Floats, sd: float, points: int = 1601) -> Forecast:
    knots = np.linspace(-8.0, 8.0, points)
    return Forecast(knots, ndtr((knots - centre[:, None]) / sd), centre, y)


def test_both_sides_of_atoms_and_segments() -> None:
    forecast = with_atoms(np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0]))
    minus, plus = forecast.ends
    np.testing.assert_allclose(minus, [0.0, 0.0, 0.35, 0.5, 0.725, 0.85, 1.0])
    np.testing.assert_allclose(plus, [0.0, 0.2, 0.35, 0.6, 0.725, 1.0, 1.0])


def test_mass_outside_the_knots_is_an_atom_at_the_end() -> None:
    forecast = Forecast(np.array([0.0, 1.0]), np.array([[0.3, 0.8]] * 2), np.zeros(2), np.array([0.0, 1.0]))
    minus, plus = forecast.ends
    np.testing.assert_allclose(minus, [0.0, 0.8])
    np.testing.assert_allclose(plus, [0.3, 1.0])
    np.testing.assert_allclose(forecast.quantiles([0.2, 0.9])[0], [0.0, 1.0])


def test_randomised_pit_is_uniform_with_atoms() -> None:
    pit = randomised_pit(with_atoms(draws(40_000)))
    assert stats.kstest(pit, "uniform").pvalue > 0.01
    assert kolmogorov_smirnov(pit) == pytest.approx(stats.kstest(pit, "uniform").statistic)
    for level in (0.5, 0.8, 0.9):
        assert coverage(pit, level) == pytest.approx(level, abs=0.01)


def test_a_cdf_without_its_atom_is_caught() -> None:
    """F(0) forced to 0, as the old evaluation did: a fifth of the rows can't be covered."""
    heights = HEIGHTS.copy()
    heights[:2] = 0.0
    y = draws(20_000)
    forced = judge(Forecast(KNOTS, np.tile(heights, (len(y), 1)), np.full(len(y), 1.0), y), 0.0, 3.0)
    assert forced.ks > 0.15
    assert forced.coverage_error() > 10.0
    assert judge(with_atoms(y), 0.0, 3.0).coverage_error() < 1.0


@pytest.mark.parametrize("sd", [0.7, 1.4])
def test_a_wrong_spread_is_caught(sd: float) -> None:
    random = np.random.default_rng(1)
    centre = random.normal(size=6_000)
    y = centre + random.normal(size=6_000)
    right = judge(normal_forecast(y, centre, 1.0, 161), -8.0, 8.0)
    wrong = judge(normal_forecast(y, centre, sd, 161), -8.0, 8.0)
    assert right.coverage_error() < 2.0 < 8.0 < wrong.coverage_error()
    assert right.crps < wrong.crps
    assert right.nll < wrong.nll


@pytest.mark.parametrize("y", [-0.5, 0.0, 0.25, 1.0, 1.7, 3.0, 3.5])
def test_crps_with_atoms_against_sampling(y: float) -> None:
    """CRPS = E|X - y| - E|X - X'| / 2 (Gneiting and Raftery 2007)."""
    first, second = draws(400_000, seed=1), draws(400_000, seed=2)
    expected = np.abs(first - y).mean() - 0.5 * np.abs(first - second).mean()
    assert crps(with_atoms(np.array([y])))[0] == pytest.approx(expected, abs=5e-3)


def test_crps_of_a_normal_is_the_closed_form() -> None:
    y, centre = np.array([-1.3, 0.2, 2.9]), np.array([0.0, 0.5, 1.0])
    z = (y - centre) / 0.8
    expected = 0.8 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(crps(normal_forecast(y, centre, 0.8)), expected, rtol=1e-4)


def test_crps_of_a_point_mass_is_the_absolute_error() -> None:
    forecast = Forecast(np.array([0.0, 1.0, 1.0, 3.0]), np.array([[0.0, 0.0, 1.0, 1.0]]), np.ones(1), np.array([2.5]))
    assert crps(forecast)[0] == pytest.approx(1.5)


def test_quantiles_invert_the_cdf() -> None:
    forecast = with_atoms(np.array([0.5]))
    np.testing.assert_allclose(
        forecast.quantiles([0.1, 0.2, 0.35, 0.5, 0.55, 0.6, 0.725, 0.9])[0], [0, 0, 0.5, 1, 1, 1, 2, 3]
    )
    normal = normal_forecast(np.zeros(1), np.array([0.3]), 0.9)
    np.testing.assert_allclose(normal.quantiles(LEVELS)[0], stats.norm.ppf(LEVELS, 0.3, 0.9), atol=1e-4)


def test_pinball_over_many_levels_is_the_crps() -> None:
    y, centre = np.random.default_rng(3).normal(size=100), np.zeros(100)
    forecast = normal_forecast(y, centre, 1.0)
    levels = (np.arange(400) + 0.5) / 400
    assert pinball_crps(forecast.quantiles(levels), y, levels) == pytest.approx(crps(forecast).mean(), rel=5e-3)


def test_buckets_are_closed_on_the_left() -> None:
    edges = np.array([0.0, 1.0, 2.0, 3.0])
    y = np.array([0.0, 0.99, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(bucket_of(y, edges), [0, 0, 1, 2, 2])
    masses = bucket_masses(with_atoms(y), edges)
    np.testing.assert_allclose(masses[0], [0.5, 0.225, 0.275])
    expected = -np.mean(np.log([0.5, 0.5, 0.225, 0.275, 0.275]))
    assert discretised_nll(masses, bucket_of(y, edges)) == pytest.approx(expected)


def test_calibration_error_of_the_top_bucket() -> None:
    masses = np.array([[0.7, 0.3]] * 10 + [[0.1, 0.9]] * 10)
    truth = np.array([0] * 7 + [1] * 3 + [1] * 5 + [0] * 5)
    assert expected_calibration_error(masses, truth) == pytest.approx(0.5 * 0.0 + 0.5 * 0.4)


def test_the_mean_of_the_distribution() -> None:
    expected = 0.2 * 0 + 0.3 * 0.5 + 0.1 * 1 + 0.25 * 2 + 0.15 * 3
    assert with_atoms(np.zeros(1)).distribution_mean()[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("knots", "cdf"),
    [
        ([0.0, 1.0], [[0.5, 0.2]]),
        ([0.0, 1.0], [[0.0, 1.2]]),
        ([0.0, 1.0], [[0.0, np.nan]]),
        ([1.0, 0.0], [[0.0, 1.0]]),
        ([0.0, 1.0, 2.0], [[0.0, 1.0]]),
    ],
)
def test_what_is_no_distribution_is_refused(knots: list[float], cdf: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"cdf|knots"):
        Forecast(np.array(knots), np.array(cdf), np.zeros(1), np.zeros(1))
