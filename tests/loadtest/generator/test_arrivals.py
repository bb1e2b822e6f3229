import itertools

import numpy as np
import pytest
from scipy import stats

from loadtest.generator.arrivals import due_times
from loadtest.generator.plan import Arrivals, LoadPlan, RateStep


def _all(plan: LoadPlan) -> np.ndarray:
    return np.sort(np.concatenate([list(due_times(plan, share)) for share in range(plan.processes)]))


def test_poisson_gaps_are_exponential_over_all_processes_together() -> None:
    times = _all(LoadPlan("x:1", rate_per_s=500.0, duration_s=40.0, warm_up_s=0.0, processes=3, seed=4))
    assert stats.kstest(np.diff(times), "expon", args=(0, 1 / 500)).pvalue > 0.01
    assert abs(len(times) - 20_000) < 4 * 20_000**0.5
    assert stats.kstest(times / 40.0, "uniform").pvalue > 0.01


def test_the_same_seed_gives_the_same_arrivals_and_another_does_not() -> None:
    plans = [LoadPlan("x:1", rate_per_s=50.0, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (list(itertools.islice(due_times(plan, 0), 100)) for plan in plans)
    assert first == again
    assert first != other


def test_constant_arrivals_of_several_processes_are_evenly_spaced() -> None:
    times = _all(LoadPlan("x:1", "constant", rate_per_s=200.0, duration_s=50.0, warm_up_s=1.0, processes=3))
    assert np.diff(times) == pytest.approx(1 / 200)
    assert len(times) == pytest.approx(200 * 51, abs=3)


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_each_step_has_its_rate_and_the_warm_up_the_first(arrivals: Arrivals) -> None:
    steps = (RateStep(10.0, 100.0), RateStep(5.0, 1000.0), RateStep(10.0, 50.0))
    times = _all(LoadPlan("x:1", arrivals, steps=steps, warm_up_s=2.0, processes=2))
    counts = np.histogram(times, [0.0, 2.0, 12.0, 17.0, 27.0])[0]
    expected = np.array([200, 1000, 5000, 500])
    assert (np.abs(counts - expected) <= (2 if arrivals == "constant" else 4 * expected**0.5)).all()
    assert times[-1] < 27.0
