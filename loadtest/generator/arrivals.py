"""Send times of requests: computed beforehand from the plan and its seed, independent of the server."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from loadtest.generator.plan import LoadPlan

_CHUNK = 4096


def due_times(plan: LoadPlan, share: int) -> Iterator[float]:
    """Send times of process number `share`, in seconds since the start of the warm-up.

    Points with unit rate are mapped through the inverse of the plan's cumulative rate, which is exact for rates that
    change from step to step. The sum of independent Poisson processes is a Poisson process with the summed rate.
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
        # The processes send alternately.
        first = (share + 0.5) / plan.processes
        for chunk in itertools.count():
            yield first + np.arange(chunk * _CHUNK, (chunk + 1) * _CHUNK, dtype=np.float64)
    rng = np.random.default_rng([plan.seed, share])
    reached = 0.0
    while True:
        points = reached + np.cumsum(rng.exponential(1.0, _CHUNK))
        reached = float(points[-1])
        yield points
