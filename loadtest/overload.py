"""Twice what the server can do: how much it still answers, how fast it refuses the rest, how soon it is well again."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from cli.figures import Figures
from loadtest.plan import LoadPlan, Step
from loadtest.recovery import Stretch, recovery_s, stretch
from loadtest.result import LoadResult
from loadtest.run import Progress, run_load

OnProgress = Callable[[Progress], None]

_INTERVAL_S = 0.25
_PEAK_S = 5.0
_BASE_S = 5.0
_AFTER_S = 10.0
_BASE_SHARE = 0.5
# Enough to keep every core busy, few enough that nothing is refused.
_PEAK_CONCURRENCY = 16


@dataclass(frozen=True)
class OverloadReport:
    """`peak`: good answers per second with as much under way as keeps the server busy."""

    peak: LoadResult
    run: LoadResult
    overloaded: Stretch
    recovery_s: float

    @property
    def goodput_share(self) -> float:
        return self.overloaded.goodput_per_s / self.peak.goodput_per_s

    @property
    def shed_p99_s(self) -> float:
        return self.run.shed_latency.percentile_s(99)

    def as_json(self) -> dict[str, object]:
        return {
            "peak_per_s": self.peak.goodput_per_s,
            "offered_per_s": self.overloaded.due / self.overloaded.seconds,
            "goodput_per_s": self.overloaded.goodput_per_s,
            "goodput_share": self.goodput_share,
            "shed_p99_ms": 1000 * self.shed_p99_s,
            "recovery_s": self.recovery_s,
            "run": self.run.as_json(),
        }


def measure_peak(plan: LoadPlan, seconds: float = _PEAK_S, on_progress: OnProgress | None = None) -> LoadResult:
    """Throughput of a closed loop with the requests and connections of `plan`."""
    concurrency = max(_PEAK_CONCURRENCY, plan.processes)
    saturating = replace(plan, arrivals="closed", concurrency=concurrency, duration_s=seconds, rate_per_s=0.0, steps=())
    return run_load(saturating, on_progress)


def run_overload(
    plan: LoadPlan, times: float = 2.0, seconds: float = 60.0, on_progress: OnProgress | None = None
) -> OverloadReport:
    """Measure the peak; then half of it, `times` of it for `seconds`, and half of it again.

    Address, requests, processes and connections are taken from `plan`; its rate and duration are not.
    """
    peak = measure_peak(plan, on_progress=on_progress)
    base = _BASE_SHARE * peak.goodput_per_s
    steps = (Step(_BASE_S, base), Step(seconds, times * peak.goodput_per_s), Step(_AFTER_S, base))
    arrivals = "poisson" if plan.arrivals == "closed" else plan.arrivals
    run = run_load(
        replace(plan, arrivals=arrivals, concurrency=0, rate_per_s=0.0, steps=steps, interval_s=_INTERVAL_S),
        on_progress,
    )
    before = stretch(run.timeline, 0.0, _BASE_S)
    ended_s = _BASE_S + seconds
    return OverloadReport(
        peak=peak,
        run=run,
        overloaded=stretch(run.timeline, _BASE_S, ended_s),
        recovery_s=recovery_s(run.timeline, ended_s, ended_s + _AFTER_S, before),
    )


def overload_figures(
    figures: Figures, plan: LoadPlan, *, seconds: float = 60.0, on_progress: OnProgress | None = None
) -> OverloadReport:
    """What is promised under twice the load that the server can take."""
    report = run_overload(plan, 2.0, seconds, on_progress)
    refused = f"{report.run.shed} refused of {report.run.sent}, {dict(report.run.errors)}"
    figures.console.print(f"  peak {report.peak.goodput_per_s:,.0f} requests/s; {refused}", highlight=False)
    figures.add("overload at 2x: goodput, share of the peak", report.goodput_share, ">= 0.9")
    figures.add("overload at 2x: refusals answered within, p99 ms", 1000 * report.shed_p99_s, "< 10")
    figures.add("overload at 2x: recovery, s", report.recovery_s, "<= 2")
    figures.add("overload at 2x: wrong answers", sum(report.run.check_failures.values()), "== 0")
    return report
