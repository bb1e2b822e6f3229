import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from ghostless.heads.calibration import IDENTITY, PIECES, Calibration, fit_map, fit_temperature, randomised

GRID = np.arange(PIECES + 1) / PIECES


def test_the_map_is_the_distribution_of_the_randomised_pit() -> None:
    """By brute force: draw the randomised PIT many times over and count."""
    random = np.random.default_rng(0)
    before = random.beta(2, 5, 5_000)
    after = np.minimum(before + np.where(random.random(5_000) < 0.3, 0.2, 0.0), 1.0)
    drawn = np.concatenate([randomised(before, after, seed) for seed in range(40)])
    expected = [(drawn <= u).mean() for u in GRID]
    assert fit_map(before, after) == pytest.approx(expected, abs=0.01)


def test_a_calibrated_model_is_left_alone() -> None:
    u = np.random.default_rng(1).random(3_000)
    empirical = np.array([(u <= v).mean() for v in GRID])
    assert np.abs(np.array(fit_map(u, u)) - GRID).max() < 0.5 * np.abs(empirical - GRID).max()


def test_chance_is_smoothed_away_and_a_real_departure_is_not() -> None:
    """Against the empirical map: its ragged slopes are noise with few rows, its shape is signal with many."""
    random = np.random.default_rng(2)

    def roughness(heights: np.ndarray) -> float:
        return float(np.std(np.diff(heights) * PIECES))

    few = [random.random(200) for _ in range(40)]
    empirical = np.mean([roughness(np.array([(u <= v).mean() for v in GRID])) for u in few])
    assert np.mean([roughness(np.array(fit_map(u, u))) for u in few]) < 0.75 * empirical
    many = random.beta(1.3, 1, 20_000)
    assert fit_map(many, many) == pytest.approx([(many <= v).mean() for v in GRID], abs=0.003)


def test_coverage_holds_after_smoothing() -> None:
    """A model that is too narrow, 5,000 rows: what the map leaves of it is chance."""
    random = np.random.default_rng(6)
    missed = []
    for _ in range(20):
        narrow = [stats.norm.cdf(1.1 * random.normal(size=n)) for n in (5_000, 20_000)]
        calibrated = Calibration(1.0, fit_map(narrow[0], narrow[0])).apply(torch.from_numpy(narrow[1])).numpy()
        missed.append(float(np.mean(np.abs(calibrated - 0.5) < 0.4)) - 0.8)
    assert abs(np.mean(missed)) < 0.008
    assert np.std(missed) < 0.012


def test_after_the_map_the_pit_is_uniform() -> None:
    random = np.random.default_rng(3)
    fitted, fresh = random.beta(2, 1, 20_000), random.beta(2, 1, 20_000)
    calibrated = Calibration(1.0, fit_map(fitted, fitted)).apply(torch.from_numpy(fresh)).numpy()
    assert stats.kstest(fresh, "uniform").statistic > 0.2
    assert stats.kstest(calibrated, "uniform").statistic < 0.02


@pytest.mark.parametrize("where", [0.0, 0.999, 1.0])
def test_the_map_rises_strictly_even_where_no_row_fell(where: float) -> None:
    heights = fit_map(np.full(20_000, where), np.full(20_000, where))
    assert (np.diff(np.float32(heights)) > 0).all()
    assert heights[0] == 0.0
    assert heights[-1] == 1.0


def test_apply_is_the_sum_of_clips_of_a_graph_and_numpys_interpolation() -> None:
    random = np.random.default_rng(4)
    heights = np.concatenate([[0.0], np.cumsum(random.dirichlet(np.ones(PIECES)))])
    heights[-1] = 1.0
    u = np.concatenate([random.random(500), GRID])
    clips = np.clip(u[:, None] * PIECES - np.arange(PIECES), 0, 1) @ np.diff(heights)
    ours = Calibration(1.0, tuple(heights.tolist())).apply(torch.from_numpy(u)).numpy()
    assert ours == pytest.approx(np.interp(u, GRID, heights), abs=1e-12)
    assert clips == pytest.approx(ours, abs=1e-12)


def test_no_rows_no_map() -> None:
    assert fit_map([], []) == IDENTITY
    assert Calibration().is_identity


def test_a_map_that_does_not_rise_is_refused() -> None:
    with pytest.raises(ValueError, match="rise strictly"):
        Calibration(1.0, (0.0, 0.5, 0.5, 1.0))
    with pytest.raises(ValueError, match="positive"):
        Calibration(0.0)


def test_the_temperature_is_scipys_minimum() -> None:
    """Labels drawn at temperature 1.6: logits are too sharp by that much."""
    random = np.random.default_rng(5)
    logits = random.normal(0, 2, (4_000, 8))
    labels = np.array([random.choice(8, p=special.softmax(row / 1.6)) for row in logits])

    def nll(temperature: float) -> float:
        return float(-special.log_softmax(logits / temperature, axis=1)[np.arange(4_000), labels].mean())

    found = fit_temperature(nll)
    assert found == pytest.approx(optimize.minimize_scalar(nll, bounds=(0.5, 3), method="bounded").x, abs=3e-3)
    assert found == pytest.approx(1.6, abs=0.1)
