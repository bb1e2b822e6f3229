"""When requests are due: worked out beforehand from the plan and its seed, whatever the server does."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from loadtest.generator.plan import LoadPlan

_CHUNK = 4096


def due_times(plan: LoadPlan, share: int) -> Iterator[float]:
    """Seconds since the warm-up's begin at which process `share` of the plan's processes sends.

    Both kinds are points of unit rate, mapped through the inverse of the plan's cumulative intensity: exact for a rate
    that changes from step to step. Independent Poisson processes add up to one of the summed rate.
    """
    steps = plan.rate_steps
    lengths = [plan.warm_up_s, *(step.duration_s for step in steps)]
    rates = [steps[0].rate_per_s, *(step.rate_per_s for step in steps)]
    times = np.concatenate([[0.0], np.cumsum(lengths)])
    intensity = np.concatenate([[0.0], np.cumsum(np.multiply(lengths, rates))]) / plan.processes
    for points in _unit_points(plan, share):
        known = points[points < intensity[-1]]
        yield from np.interp(known, intensity, times).tolist()
        if len(known) < len(points):
            return


def _unit_points(plan: LoadPlan, share: int) -> Iterator[npt.NDArray[np.float64]]:
    if plan.arrivals == "constant":
        # Processes take turns.
        first = (share + 0.5) / plan.processes
        for chunk in itertools.count():
            yield first + np.arange(chunk * _CHUNK, (chunk + 1) * _CHUNK, dtype=np.float64)
    rng = np.random.default_rng([plan.seed, share])
    reached = 0.0
    while True:
        points = reached + np.cumsum(rng.exponential(1.0, _CHUNK))
        reached = float(points[-1])
        yield points
