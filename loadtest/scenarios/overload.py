"""Overload: how many requests still succeed, how fast the rest are rejected, and how quickly the server recovers."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from loadtest.figures import Figures
from loadtest.generator.plan import LoadPlan, RateStep, RequestMix
from loadtest.generator.result import LoadResult
from loadtest.generator.run import LoadProgress, run_load
from loadtest.scenarios.recovery import Stretch, recovery_s, stretch

OnProgress = Callable[[LoadProgress], None]

_INTERVAL_S = 0.25
_PEAK_S = 5.0
_CALM_S = 5.0
_AFTER_TIMES = 2
_BASE_SHARE = 0.5
# Enough to keep every core busy, but not enough to cause rejections.
_PEAK_CONCURRENCY = 16


@dataclass(frozen=True)
class OverloadReport:
    """`peak` is the throughput of a closed loop that keeps the server busy. It is measured before and after the
    overload, so that a machine that became slower meanwhile does not look like a server that degraded."""

    peak: LoadResult
    peak_after: LoadResult
    run: LoadResult
    overloaded: Stretch
    recovery_s: float

    @property
    def goodput_share(self) -> float:
        """Goodput relative to the peak, in rows: a full queue has room for small requests more often than for large
        ones."""
        return self.overloaded.rows_per_s / (0.5 * (self.peak.rows_per_s + self.peak_after.rows_per_s))

    @property
    def peaks(self) -> str:
        """Both peaks as text."""
        return f"{self.peak.goodput_per_s:,.0f} requests/s before and {self.peak_after.goodput_per_s:,.0f} after"

    @property
    def shed_p99_s(self) -> float:
        return self.run.shed_latency.percentile_s(99)

    def as_json(self) -> dict[str, object]:
        return {
            "peak_per_s": self.peak.goodput_per_s,
            "peak_after_per_s": self.peak_after.goodput_per_s,
            "offered_per_s": self.overloaded.due / self.overloaded.seconds,
            "goodput_per_s": self.overloaded.goodput_per_s,
            "goodput_share": self.goodput_share,
            "shed_p99_ms": 1000 * self.shed_p99_s,
            "recovery_s": self.recovery_s,
            "run": self.run.as_json(),
        }


def saturating_plan(address: str, mix: RequestMix) -> LoadPlan:
    """The closed loop that measures the peak."""
    return LoadPlan(address, "closed", concurrency=_PEAK_CONCURRENCY, duration_s=_PEAK_S, mix=mix)


def run_overload(
    saturating: LoadPlan,
    times: float = 2.0,
    seconds: float = 60.0,
    on_progress: OnProgress | None = None,
    calm_s: float = _CALM_S,
) -> OverloadReport:
    """Measure the peak with the closed loop `saturating`. Then run an open loop at half the peak for `calm_s`, at
    `times` the peak for `seconds`, and at half the peak for twice `calm_s`. Finally measure the peak again."""
    peak = run_load(saturating, on_progress)
    base = _BASE_SHARE * peak.goodput_per_s
    after_s = _AFTER_TIMES * calm_s
    steps = (RateStep(calm_s, base), RateStep(seconds, times * peak.goodput_per_s), RateStep(after_s, base))
    plan = replace(saturating, arrivals="poisson", concurrency=0, steps=steps, interval_s=_INTERVAL_S)
    run = run_load(plan, on_progress)
    before = stretch(run.timeline, 0.0, calm_s)
    ended_s = calm_s + seconds
    return OverloadReport(
        peak=peak,
        peak_after=run_load(saturating, on_progress),
        run=run,
        overloaded=stretch(run.timeline, calm_s, ended_s),
        recovery_s=recovery_s(run.timeline, ended_s, ended_s + after_s, before),
    )


def overload_figures(
    figures: Figures, saturating: LoadPlan, *, seconds: float = 60.0, calm_s: float = _CALM_S
) -> OverloadReport:
    """Add the figures of an overload at twice the peak, with their bounds."""
    report = run_overload(saturating, 2.0, seconds, calm_s=calm_s)
    refused = f"{report.run.shed} of {report.run.sent} rejected, {dict(report.run.errors)}"
    figures.console.print(f"  peak {report.peaks}; {refused}", highlight=False)
    figures.add("overload at 2x: goodput relative to the peak", report.goodput_share, ">= 0.9")
    figures.add("overload at 2x: p99 latency of rejections, ms", 1000 * report.shed_p99_s, "< 10")
    figures.add("overload at 2x: time to recover, s", report.recovery_s, "<= 2")
    figures.add("overload at 2x: wrong responses", sum(report.run.check_failures.values()), "== 0")
    return report
