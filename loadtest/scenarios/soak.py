"""Hours of steady load, to detect growth of memory or latency."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import theilslopes

from loadtest.errors import PlanError
from loadtest.generator.plan import LoadPlan
from loadtest.generator.result import LoadResult
from loadtest.generator.run import LoadProgress, run_load
from loadtest.resources import memory_mb

# Caches fill and allocators settle at first, so growth is measured after this share of the run.
_SETTLING_SHARE = 0.25
_POINTS = 600
_FEWEST_POINTS = 20
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Growth:
    """Growth over the settled part of a run, as a share of the median: estimate and lower end of its 95% interval.

    The slope is the Theil-Sen estimate (median of pairwise slopes). `ok`: the data do not show that the growth exceeds
    `bound`.
    """

    name: str
    median: float
    growth: float
    least_growth: float
    bound: float

    @property
    def ok(self) -> bool:
        return self.least_growth <= self.bound


def growth_of(name: str, times_s: Sequence[float], values: Sequence[float], bound: float) -> Growth:
    """Growth of a series, without the part in which it settles."""
    known = np.isfinite(values)
    times, series = np.asarray(times_s)[known], np.asarray(values)[known]
    late = times >= times[0] + _SETTLING_SHARE * (times[-1] - times[0])
    times, series = times[late], series[late]
    slope, _, lowest, _ = theilslopes(series, times, alpha=_CONFIDENCE)
    median, length_s = float(np.median(series)), float(times[-1] - times[0])
    return Growth(name, median, float(slope) * length_s / median, float(lowest) * length_s / median, bound)


@dataclass(frozen=True)
class SoakReport:
    """`memory`: (seconds, MB of the server's processes) once per interval; empty if they run on another machine."""

    run: LoadResult
    memory: tuple[tuple[float, float], ...]
    drifts: tuple[Growth, ...]

    @property
    def ok(self) -> bool:
        return all(each.ok for each in self.drifts) and not self.run.check_failures

    def as_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "drifts": [{**vars(each), "ok": each.ok} for each in self.drifts],
            "memory_mb": [list(point) for point in self.memory],
            "run": self.run.as_json(),
        }


def run_soak(
    plan: LoadPlan,
    server_pids: Sequence[int] = (),
    *,
    memory_bound: float = 0.02,
    latency_bound: float = 0.2,
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> SoakReport:
    """Run a steady load and record the memory of `server_pids` and their children."""
    interval_s = max(plan.interval_s, plan.duration_s / _POINTS)
    if plan.duration_s / interval_s < _FEWEST_POINTS:
        raise PlanError(f"a soak of {plan.duration_s:g} s; expected at least {_FEWEST_POINTS * interval_s:g} s")
    memory: list[tuple[float, float]] = []

    def follow(progress: LoadProgress) -> None:
        last_s = memory[-1][0] if memory else -math.inf
        if server_pids and progress.elapsed_s >= max(0.0, last_s + interval_s):
            memory.append((progress.elapsed_s, memory_mb(server_pids)))
        if on_progress is not None:
            on_progress(progress)

    run = run_load(replace(plan, interval_s=interval_s), follow)
    whole = [interval for interval in run.timeline if interval.start_s + interval.length_s <= run.elapsed_s]
    drifts = []
    if len(memory) >= _FEWEST_POINTS // 2:
        times, megabytes = zip(*memory, strict=True)
        drifts.append(growth_of("server memory", times, megabytes, memory_bound))
    if len(whole) >= _FEWEST_POINTS // 2:
        starts = [interval.start_s for interval in whole]
        drifts.append(growth_of("median latency", starts, [interval.p50_s for interval in whole], latency_bound))
        drifts.append(growth_of("p99 latency", starts, [interval.p99_s for interval in whole], latency_bound))
    return SoakReport(run, tuple(memory), tuple(drifts))
