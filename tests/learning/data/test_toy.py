import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from learning.data.toy import toy, toy_cdf, toy_density


def own_cdf(low: float, high: float) -> np.ndarray:
    drawn = toy(20_000, seed=1, low=low, high=high)
    x, y = drawn.columns["x"], drawn.target
    return np.concatenate([toy_cdf(x[i : i + 1], y[i : i + 1].astype(float))[0] for i in range(drawn.rows)])


@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (2.0, 4.0), (4.0, 8.0)])
def test_samples_follow_the_stated_truth(low: float, high: float) -> None:
    assert kstest(own_cdf(low, high), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("x", [-2.0, 0.0, 1.9, 3.0, 10.0])
def test_density_integrates_to_one_and_is_the_slope_of_the_cdf(x: float) -> None:
    where = np.array([x], np.float32)

    def density(y: float) -> float:
        return float(toy_density(where, np.array([y]))[0, 0])

    total = quad(density, -0.5, 1.5, points=[0.0, 1.0], limit=200)[0]
    below = quad(density, -0.5, 0.4, points=[0.0], limit=200)[0]
    assert total == pytest.approx(1.0, abs=1e-9)
    assert toy_cdf(where, np.array([0.4]))[0, 0] == pytest.approx(below, abs=1e-9)


def test_training_stays_in_its_region_and_leaves_the_ghost_value_out() -> None:
    drawn = toy(20_000, seed=0)
    assert np.abs(drawn.columns["x"]).max() <= 2.0
    assert ((drawn.target > 0.35) & (drawn.target < 0.65)).mean() < 1e-3
    assert 0.45 < (drawn.target > 0.5).mean() < 0.55


def test_far_out_it_is_pure_noise() -> None:
    density = toy_density(np.array([4.0, 100.0], np.float32), np.linspace(-0.5, 1.5, 7))
    assert density == pytest.approx(np.full((2, 7), 0.5))


def test_seeds() -> None:
    assert toy(100, seed=0).fingerprint() == toy(100, seed=0).fingerprint()
    assert toy(100, seed=0).fingerprint() != toy(100, seed=1).fingerprint()
