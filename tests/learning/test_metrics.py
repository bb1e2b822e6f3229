"""Every metric against an independent source: scoringrules, scipy's quadrature, or a case worked by hand."""

import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate, stats

from learning import array_checks, metrics
from learning.array_checks import Floats

EDGES = metrics.uniform_edges(0.0, 3.0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def random_cdfs(rng: np.random.Generator, rows: int, points: int) -> Floats:
    """Rows of a CDF that start above 0 and end below 1: mass outside the grid on both sides."""
    steps = rng.gamma(0.3, size=(rows, points + 1))
    cdf: Floats = np.cumsum(steps, axis=1)[:, :-1] / steps.sum(axis=1, keepdims=True)
    return cdf


def crps_by_quadrature(cdf: Floats, grid: Floats, y: float) -> float:
    def integrand(t: float) -> float:
        return float((np.interp(t, grid, cdf) - (y <= t)) ** 2)

    cuts = np.unique(np.append(grid, y))
    inside = sum(integrate.quad(integrand, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(cuts))
    return float(inside)


class TestBuckets:
    def test_edges_are_the_papers_ten(self) -> None:
        np.testing.assert_allclose(EDGES, [0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.4, 2.7, 3.0])

    def test_edge_values_belong_to_the_right_bucket_and_the_outside_to_the_end_ones(self) -> None:
        y = [-0.5, 0.0, 0.99, 1.0, 2.999, 3.0, 9.0]
        assert metrics.bucket_index(y, [0.0, 1.0, 2.0, 3.0]).tolist() == [0, 0, 0, 1, 2, 2, 2]

    def test_agrees_with_numpy_histogram(self, rng: np.random.Generator) -> None:
        y = rng.uniform(0, 3, size=2000)
        counts = np.bincount(metrics.bucket_index(y, EDGES), minlength=10)
        np.testing.assert_array_equal(counts, np.histogram(y, bins=EDGES)[0])


class TestDiscretisedNll:
    def test_hand_worked(self) -> None:
        masses = [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]
        expected = -(np.log(0.25) + np.log(0.7)) / 2
        assert metrics.discretised_nll(masses, [1.0, 3.0], [0, 1, 2, 3]) == pytest.approx(expected, rel=1e-12)

    def test_zero_mass_costs_the_floor(self) -> None:
        masses = [[1.0, 0.0]]
        assert metrics.discretised_nll(masses, [1.5], [0, 1, 2]) == pytest.approx(-np.log(1e-12))
        assert metrics.discretised_nll(masses, [1.5], [0, 1, 2], floor=1e-3) == pytest.approx(-np.log(1e-3))

    def test_marginal_forecast_scores_the_entropy_of_the_histogram(self, rng: np.random.Generator) -> None:
        y = np.clip(rng.gamma(2.0, 0.5, size=5000), 0, 3)
        share = np.histogram(y, bins=EDGES)[0] / len(y)
        nll = metrics.discretised_nll(np.tile(share, (len(y), 1)), y, EDGES)
        assert nll == pytest.approx(stats.entropy(share), rel=1e-12)

    def test_gaussian_masses_against_scipy(self, rng: np.random.Generator) -> None:
        mean, y = rng.uniform(0, 3, 50), rng.uniform(0, 3, 50)
        masses = np.diff(stats.norm.cdf(EDGES, mean[:, None], 0.4), axis=1)
        lower = np.floor(y / 0.3) * 0.3
        direct = -np.log(stats.norm.cdf(lower + 0.3, mean, 0.4) - stats.norm.cdf(lower, mean, 0.4)).mean()
        assert metrics.discretised_nll(masses, y, EDGES) == pytest.approx(direct, rel=1e-6)


class TestCalibrationError:
    def test_zero_where_confidence_is_accuracy(self) -> None:
        # Ten rows say 0.7 and seven hit; ten say 0.4 and four hit.
        masses = [[0.7, 0.3, 0.0]] * 10 + [[0.3, 0.3, 0.4]] * 10
        y = [0.5] * 7 + [1.5] * 3 + [2.5] * 4 + [0.5] * 6
        assert metrics.expected_calibration_error(masses, y, [0, 1, 2, 3]) == pytest.approx(0.0, abs=1e-12)

    def test_hand_worked_with_empty_bins(self) -> None:
        masses = [[0.95, 0.05], [0.95, 0.05], [0.45, 0.55], [0.35, 0.65]]
        y = [0.5, 1.5, 0.5, 1.5]
        found = metrics.reliability(masses, y, [0, 1, 2])
        assert found.counts.tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 2]
        np.testing.assert_allclose(found.confidence[[5, 6, 9]], [0.55, 0.65, 0.95])
        np.testing.assert_allclose(found.accuracy[[5, 6, 9]], [0.0, 1.0, 0.5])
        assert np.isnan(found.confidence[0])
        assert np.isnan(found.accuracy[0])
        expected = (1 * 0.55 + 1 * 0.35 + 2 * 0.45) / 4
        assert metrics.expected_calibration_error(masses, y, [0, 1, 2]) == pytest.approx(expected)

    def test_a_confidence_on_a_bin_edge_belongs_to_the_bin_below(self) -> None:
        masses = [[level, 1 - level] for level in (0.6, 0.7, 0.8, 0.9, 1.0)]
        counts = metrics.reliability(masses, [0.5] * 5, [0, 1, 2]).counts
        assert counts.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]

    def test_against_a_loop_over_bins(self, rng: np.random.Generator) -> None:
        masses, y = rng.dirichlet(np.full(10, 0.3), size=800), rng.uniform(0, 3, 800)
        confidence, hit = masses.max(axis=1), masses.argmax(axis=1) == np.floor(y / 0.3)
        expected = 0.0
        for low in np.arange(5) / 5:
            chosen = (confidence > low) & (confidence <= low + 0.2)
            if chosen.any():
                expected += chosen.mean() * abs(confidence[chosen].mean() - hit[chosen].mean())
        found = metrics.expected_calibration_error(masses, y, EDGES, confidence_bins=5)
        assert found == pytest.approx(expected, rel=1e-9)


class TestCrps:
    def test_against_quadrature_on_uneven_grids_with_mass_outside(self, rng: np.random.Generator) -> None:
        grid = np.sort(rng.uniform(0, 3, size=12))
        cdf = random_cdfs(rng, 20, 12)
        y = rng.uniform(grid[0], grid[-1], size=20)
        y[:3] = grid[[0, 5, 11]]
        expected = [crps_by_quadrature(row, grid, value) for row, value in zip(cdf, y, strict=True)]
        np.testing.assert_allclose(metrics.crps(cdf, grid, y), expected, rtol=1e-9, atol=1e-12)

    def test_uniform_forecast_against_scoringrules(self) -> None:
        y = np.linspace(0, 3, 31)
        cdf = np.tile([0.0, 0.2, 1.0], (31, 1))
        expected = scoringrules.crps_uniform(y, 0.0, 3.0)
        np.testing.assert_allclose(metrics.crps(cdf, [0, 0.6, 3], y), expected, rtol=1e-12)

    def test_normal_forecast_against_scoringrules(self, rng: np.random.Generator) -> None:
        grid = np.linspace(-8, 8, 4001)
        mean, scale = rng.normal(size=30), rng.uniform(0.3, 1.0, size=30)
        y = rng.normal(size=30)
        cdf = stats.norm.cdf(grid, mean[:, None], scale[:, None])
        np.testing.assert_allclose(
            metrics.crps(cdf, grid, y), scoringrules.crps_normal(y, mean, scale), rtol=1e-4, atol=1e-6
        )

    def test_against_scoringrules_on_quantiles_of_the_same_forecast(self, rng: np.random.Generator) -> None:
        grid = np.linspace(0, 3, 16)
        cdf = np.concatenate([np.zeros((10, 1)), np.sort(rng.uniform(size=(10, 14))), np.ones((10, 1))], axis=1)
        levels = (np.arange(20_000) + 0.5) / 20_000
        quantiles = np.stack([np.interp(levels, row, grid) for row in cdf])
        y = rng.uniform(0, 3, 10)
        expected = scoringrules.crps_quantile(y, quantiles, levels)
        np.testing.assert_allclose(metrics.crps(cdf, grid, y), expected, rtol=1e-6)

    def test_mass_outside_is_an_atom_at_the_end(self) -> None:
        # An ensemble of 1 and 3 members at the two ends is the same forecast.
        found = metrics.crps(np.full((3, 2), 0.25), [0, 1], [0.0, 0.3, 1.0])
        members = np.tile([0.0, 1.0, 1.0, 1.0], (3, 1))
        expected = scoringrules.crps_ensemble(np.array([0.0, 0.3, 1.0]), members)
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    def test_truth_beyond_the_grid_pays_the_distance(self) -> None:
        members = np.tile([0.0, 1.0, 1.0, 1.0], (2, 1))
        y = np.array([-0.5, 2.0])
        expected = scoringrules.crps_ensemble(y, members)
        np.testing.assert_allclose(metrics.crps(np.full((2, 2), 0.25), [0, 1], y), expected, rtol=1e-12)

    def test_chunks_change_nothing(self, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
        grid, cdf, y = np.linspace(0, 3, 21), random_cdfs(rng, 57, 21), rng.uniform(0, 3, 57)
        whole = metrics.crps(cdf, grid, y)
        monkeypatch.setattr(array_checks, "_CHUNK_ELEMENTS", 100)
        np.testing.assert_array_equal(metrics.crps(cdf, grid, y), whole)

    def test_single_precision_input_is_scored_in_double(self, rng: np.random.Generator) -> None:
        grid, cdf, y = (
            np.linspace(0, 3, 21),
            random_cdfs(rng, 40, 21).astype(np.float32),
            rng.uniform(0, 3, 40),
        )
        exact = metrics.crps(cdf.astype(np.float64), grid, y)
        np.testing.assert_array_equal(metrics.crps(cdf, grid, y), exact)

    @settings(max_examples=60, deadline=None)
    @given(
        steps=arrays(np.float64, (6, 9), elements=st.floats(0.0, 1.0)),
        y=arrays(np.float64, 6, elements=st.floats(-1.0, 4.0)),
    )
    def test_never_negative_and_at_most_the_width(self, steps: Floats, y: Floats) -> None:
        cdf = np.cumsum(steps, axis=1) / 9.0
        scores = metrics.crps(cdf, np.linspace(0, 3, 9), y)
        assert (scores >= 0).all()
        assert (scores <= 3 + np.maximum(-y, 0) + np.maximum(y - 3, 0) + 1e-12).all()

    def test_the_true_distribution_scores_best(self, rng: np.random.Generator) -> None:
        grid, y = np.linspace(-6, 6, 601), rng.normal(size=20_000)
        scores = [
            metrics.crps(np.broadcast_to(stats.norm.cdf(grid, 0, scale), (20_000, 601)), grid, y).mean()
            for scale in (0.7, 1.0, 1.4)
        ]
        assert scores[1] < min(scores[0], scores[2])


class TestCrpsGaussianMixture:
    def test_against_scoringrules(self, rng: np.random.Generator) -> None:
        weights = rng.dirichlet(np.ones(4), size=25)
        means, scales, y = rng.normal(size=(25, 4)), rng.uniform(0.05, 2, (25, 4)), rng.normal(size=25)
        expected = scoringrules.crps_mixnorm(y, means, scales, weights)
        np.testing.assert_allclose(metrics.crps_gaussian_mixture(y, weights, means, scales), expected, rtol=1e-10)

    def test_one_component_is_the_normal_score(self) -> None:
        y = np.linspace(-3, 3, 7)
        found = metrics.crps_gaussian_mixture(y, [1.0], np.full((7, 1), 0.5), np.full((7, 1), 0.8))
        np.testing.assert_allclose(found, scoringrules.crps_normal(y, 0.5, 0.8), rtol=1e-12)

    def test_agrees_with_the_score_of_its_cdf(self, rng: np.random.Generator) -> None:
        weights, grid = np.array([0.2, 0.5, 0.3]), np.linspace(-9, 9, 6001)
        means, scales, y = rng.normal(size=(8, 3)), rng.uniform(0.3, 1, (8, 3)), rng.normal(size=8)
        parts = stats.norm.cdf(grid[:, None], means[:, None], scales[:, None])
        closed = metrics.crps_gaussian_mixture(y, weights, means, scales)
        np.testing.assert_allclose(closed, metrics.crps(parts @ weights, grid, y), rtol=1e-4)


class TestRmse:
    def test_hand_worked(self) -> None:
        assert metrics.rmse([1.0, 2.0, 3.0], [1.0, 4.0, 7.0]) == pytest.approx(np.sqrt(20 / 3))


class TestPit:
    def test_interpolates_each_row_in_its_own_cdf(self, rng: np.random.Generator) -> None:
        grid, cdf, y = np.sort(rng.uniform(0, 3, 15)), random_cdfs(rng, 50, 15), rng.uniform(-0.2, 3.2, 50)
        expected = [np.interp(value, grid, row, left=0.0, right=1.0) for row, value in zip(cdf, y, strict=True)]
        np.testing.assert_allclose(metrics.pit(cdf, grid, y), expected, rtol=1e-12, atol=1e-15)

    def test_uniform_for_a_calibrated_forecast_and_not_for_a_narrow_one(self, rng: np.random.Generator) -> None:
        grid, mean = np.linspace(-9, 9, 901), rng.normal(size=4000)
        y = mean + rng.normal(size=4000)
        honest = metrics.pit(stats.norm.cdf(grid, mean[:, None]), grid, y)
        narrow = metrics.pit(stats.norm.cdf(grid, mean[:, None], 0.7), grid, y)
        assert stats.kstest(honest, "uniform").pvalue > 0.01
        assert stats.kstest(narrow, "uniform").pvalue < 1e-6
        assert metrics.pit_histogram(narrow)[0] > 1.3

    def test_randomised_pit_is_uniform_for_a_clipped_target(self, rng: np.random.Generator) -> None:
        grid, mean = np.linspace(0, 3, 601), rng.uniform(0, 3, 4000)
        y = np.clip(mean + rng.normal(size=4000), 0, 3)
        cdf = stats.norm.cdf(grid, mean[:, None])
        assert stats.kstest(metrics.pit(cdf, grid, y), "uniform").pvalue < 1e-6
        assert stats.kstest(metrics.pit(cdf, grid, y, rng), "uniform").pvalue > 0.01

    def test_histogram_is_a_density(self) -> None:
        assert metrics.pit_histogram([0.0, 0.1, 0.3, 1.0], bins=4).tolist() == [2.0, 1.0, 0.0, 1.0]


class TestCoverage:
    def test_hand_worked(self) -> None:
        quantiles = np.tile([1.0, 2.0, 3.0, 4.0, 5.0], (4, 1))
        found = metrics.coverage(quantiles, [0.05, 0.2, 0.5, 0.8, 0.95], [0.5, 1.0, 3.5, 4.5])
        assert found.intervals == {0.9: 0.75, 0.6: 0.25}
        assert found.levels == {0.05: 0.5, 0.2: 0.5, 0.5: 0.5, 0.8: 0.75, 0.95: 1.0}

    def test_nominal_for_a_calibrated_forecast(self, rng: np.random.Generator) -> None:
        levels = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
        mean = rng.normal(size=20_000)
        quantiles = stats.norm.ppf(levels, mean[:, None])
        found = metrics.coverage(quantiles, levels, mean + rng.normal(size=20_000))
        assert sorted(found.intervals) == [0.5, 0.8, 0.9]
        for nominal, empirical in (found.intervals | found.levels).items():
            assert empirical == pytest.approx(nominal, abs=0.015)

    def test_levels_without_a_mirror_have_no_interval(self) -> None:
        assert metrics.coverage([[1.0, 2.0]], [0.5, 0.9], [1.5]).intervals == {}


class TestSummary:
    def test_gathers_the_single_metrics(self, rng: np.random.Generator) -> None:
        grid, mean = np.linspace(0, 3, 301), rng.uniform(0.5, 2.5, 6000)
        y = np.clip(mean + 0.4 * rng.normal(size=6000), 0, 3)
        cdf = stats.norm.cdf(grid, mean[:, None], 0.4)
        masses = np.diff(cdf[:, ::30], axis=1)
        found = metrics.summary(masses=masses, edges=EDGES, cdf=cdf, grid=grid, mean=mean, y=y)
        assert found.rows == 6000
        assert found.nll == metrics.discretised_nll(masses, y, EDGES)
        assert found.ece == metrics.expected_calibration_error(masses, y, EDGES)
        assert found.crps == pytest.approx(metrics.crps(cdf, grid, y).mean())
        assert found.rmse == metrics.rmse(mean, y)
        levels = np.array([0.05, 0.1, 0.25, 0.75, 0.9, 0.95])
        quantiles = np.clip(stats.norm.ppf(levels, mean[:, None], 0.4), 0, 3)
        expected = metrics.coverage(quantiles, levels, y).intervals
        assert found.coverage_50 == pytest.approx(expected[0.5], abs=1e-3)
        assert found.coverage_80 == pytest.approx(expected[0.8], abs=1e-3)
        assert found.coverage_90 == pytest.approx(expected[0.9], abs=1e-3)

    def test_is_plain_json(self) -> None:
        found = metrics.summary(
            masses=[[0.5, 0.5]], edges=[0, 1, 2], cdf=[[0, 0.5, 1]], grid=[0, 1, 2], mean=[1.0], y=[0.5]
        )
        assert json.loads(json.dumps(found.to_dict()))["nll"] == pytest.approx(np.log(2))
        assert set(found.to_dict()) >= {"nll", "ece", "crps", "rmse", "coverage_90", "rows"}


HALVES = [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.uniform_edges(3, 0), "low < high"),
        (lambda: metrics.bucket_index([1.0], [0, 2, 1]), "edges must increase strictly.*index 2"),
        (lambda: metrics.bucket_index([1.0], [0]), "edges must have at least 2"),
        (lambda: metrics.bucket_index([np.nan], [0, 1]), "y has 1 values that are not finite"),
        (lambda: metrics.discretised_nll(HALVES, [1.0], [0, 1, 2, 3]), r"\(1, 3\).*got \(1, 2\)"),
        (lambda: metrics.discretised_nll(HALVES, [1.0, 1.0], [0, 1, 2]), r"\(2, 2\).*got \(1, 2\)"),
        (lambda: metrics.discretised_nll([[-0.1, 0.5]], [1.0], [0, 1, 2]), "masses must not be negative"),
        (lambda: metrics.discretised_nll([[0.7, 0.5]], [1.0], [0, 1, 2]), "sum to more than 1, got 1.2"),
        (lambda: metrics.discretised_nll(np.empty((0, 2)), [], [0, 1, 2]), "y must be a non-empty"),
        (lambda: metrics.reliability(HALVES, [1.0], [0, 1, 2], confidence_bins=0), "confidence_bins"),
        (
            lambda: metrics.crps([[0.0, 0.6, 0.5]], [0, 1, 2], [1.0]),
            "row 0 falls by 0.1 between columns 1 and 2",
        ),
        (lambda: metrics.crps([[0.0, 1.5]], [0, 1], [0.5]), r"cdf must lie in \[0, 1\]"),
        (lambda: metrics.crps([[0.0, 1.0]], [1, 1], [0.5]), "grid must increase"),
        (lambda: metrics.crps([[0.0, 1.0]], [0, 1], [0.5, 0.5]), r"\(2, 2\).*got \(1, 2\)"),
        (lambda: metrics.pit([[0.0, np.nan]], [0, 1], [0.5]), "cdf has 1 values that are not finite"),
        (lambda: metrics.pit_histogram([1.2]), "PIT values must lie"),
        (lambda: metrics.pit_histogram([0.2], bins=0), "bins must be"),
        (lambda: metrics.rmse([1.0], [1.0, 2.0]), "same length, got 1 and 2"),
        (lambda: metrics.coverage([[2.0, 1.0]], [0.1, 0.9], [1.0]), "quantiles must not decrease"),
        (lambda: metrics.coverage([[1.0, 2.0]], [0.0, 0.9], [1.0]), "strictly between 0 and 1"),
        (lambda: metrics.coverage([[1.0, 2.0]], [0.5], [1.0]), r"\(1, 1\), got \(1, 2\)"),
        (lambda: metrics.crps_gaussian_mixture([1.0], [0.5, 0.6], HALVES, HALVES), "weights .* sum to 1"),
        (lambda: metrics.crps_gaussian_mixture([1.0], [1.0], HALVES, HALVES), r"weights must be \[k\]"),
        (
            lambda: metrics.crps_gaussian_mixture([1.0], [0.5, 0.5], HALVES, [[0.5, 0.0]]),
            "scales must be pos",
        ),
        (lambda: metrics.crps_gaussian_mixture([1.0], [0.5, 0.5], HALVES, [[0.5]]), "means and scales"),
    ],
)
def test_what_is_no_distribution_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_single_precision_rounding_is_not_an_error() -> None:
    cdf = np.array([[0.0, 0.5, 0.5 - 6e-8, 1.0 + 1e-7]], dtype=np.float32)
    assert metrics.crps(cdf, [0, 1, 2, 3], [1.5])[0] == pytest.approx(1 / 12 + 0.25 + 1 / 12, rel=1e-5)
