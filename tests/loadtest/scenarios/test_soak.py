import numpy as np
import pytest

from loadtest.errors import PlanError
from loadtest.generator.plan import LoadPlan
from loadtest.scenarios.soak import growth_of, run_soak

HOURS = np.arange(0, 7200, 12.0)


def test_a_leak_is_found_within_noise_and_its_size_is_right() -> None:
    noise = np.random.default_rng(0).normal(0, 3.0, len(HOURS))
    leaking = growth_of("server memory", HOURS.tolist(), (400 + 20 * HOURS / 7200 + noise).tolist(), bound=0.02)
    assert not leaking.ok
    # Three quarters of the run are judged: 15 MB of about 412.
    assert leaking.growth == pytest.approx(15 / 412.5, abs=0.003)


def test_noise_settling_and_single_outliers_are_no_drift() -> None:
    random = np.random.default_rng(1)
    noisy = 400 + random.normal(0, 3.0, len(HOURS))
    settling = noisy - 150 * np.exp(-HOURS / 200)
    outlying = noisy.copy()
    outlying[-3:] = 2000.0
    for series in (noisy, settling, outlying):
        assert growth_of("server memory", HOURS.tolist(), series.tolist(), bound=0.02).ok


def test_intervals_without_answers_are_left_out() -> None:
    series = np.full(len(HOURS), 5.0)
    series[::7] = np.nan
    assert growth_of("p99 latency", HOURS.tolist(), series.tolist(), bound=0.2).growth == 0.0


def test_too_short_a_soak_is_refused() -> None:
    with pytest.raises(PlanError, match="at least 20 s"):
        run_soak(LoadPlan("localhost:1", rate_per_s=1.0, duration_s=5.0))
