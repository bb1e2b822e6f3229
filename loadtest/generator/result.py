"""The result of a load. Results of the same plan, or of its parts, can be merged."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadtest.generator.latencies import Latencies
from loadtest.generator.plan import LoadPlan

SHED = "RESOURCE_EXHAUSTED"
EXPIRED = "DEADLINE_EXCEEDED"


@dataclass(frozen=True)
class Interval:
    """A part of the timeline, starting `start_s` after the warm-up. Requests are counted in the interval in which they
    were due, responses in the one in which they arrived. Percentiles are those of good responses, measured from the
    scheduled send time; NaN if there were none."""

    start_s: float
    length_s: float
    due: int
    ok: int
    shed: int
    failed: int
    rows: int
    p50_s: float
    p99_s: float
    worst_s: float

    @property
    def goodput_per_s(self) -> float:
        return self.ok / self.length_s


@dataclass(frozen=True)
class LoadResult:
    """Counts cover the requests that were due after the warm-up.

    `latency`: of good responses, from the scheduled send time, as a user experiences it. `service_latency`: the same
    from the actual send time, without the time that a request waited in the generator. `shed_latency`: of rejections,
    from the actual send time. `ok_in_time`, `rows_in_time`: good responses that arrived while the load was counted,
    whenever they were due; they give the throughput. `lateness`: delay between scheduled and actual send time; large
    values mean that the generator itself, or the server's flow control, was the bottleneck. `errors`: counts by gRPC
    status name, including rejections.
    """

    plan: LoadPlan
    elapsed_s: float = 0.0
    sent: int = 0
    ok: int = 0
    rows: int = 0
    ok_in_time: int = 0
    rows_in_time: int = 0
    answer_bytes: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    latency: Latencies = field(default_factory=Latencies)
    service_latency: Latencies = field(default_factory=Latencies)
    shed_latency: Latencies = field(default_factory=Latencies)
    lateness: Latencies = field(default_factory=Latencies)
    timeline: Sequence[Interval] = ()
    versions: Mapping[int, int] = field(default_factory=dict)
    checked: int = 0
    check_failures: Mapping[str, int] = field(default_factory=dict)
    generator_cpu_s: float = 0.0
    interrupted: bool = False

    @property
    def shed(self) -> int:
        return self.errors.get(SHED, 0)

    @property
    def failed(self) -> int:
        """Requests without a good response: rejected, expired, lost, or with a wrong response."""
        return sum(self.errors.values()) + sum(self.check_failures.values())

    @property
    def goodput_per_s(self) -> float:
        """Good responses per second."""
        return self.ok_in_time / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def rows_per_s(self) -> float:
        return self.rows_in_time / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def achieved_per_s(self) -> float:
        """Requests per second that were actually sent."""
        return self.sent / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def intended_per_s(self) -> float:
        """The mean rate of the plan; NaN in a closed loop."""
        steps = self.plan.rate_steps
        if not steps:
            return math.nan
        return sum(step.rate_per_s * step.duration_s for step in steps) / self.plan.measured_s

    @property
    def generator_cpu_per_request_s(self) -> float:
        return self.generator_cpu_s / self.sent if self.sent else math.nan

    def as_json(self) -> dict[str, object]:
        """Plain values; apply `finite_numbers` before writing them."""
        plan, mix = self.plan, self.plan.mix
        return {
            "address": plan.address,
            "arrivals": plan.arrivals,
            "intended_per_s": self.intended_per_s,
            "concurrency": plan.concurrency,
            "candidates": list(mix.candidates),
            "seed": plan.seed,
            "elapsed_s": self.elapsed_s,
            "sent": self.sent,
            "ok": self.ok,
            "rows": self.rows,
            "answer_bytes": self.answer_bytes,
            "shed": self.shed,
            "errors": dict(self.errors),
            "achieved_per_s": self.achieved_per_s,
            "goodput_per_s": self.goodput_per_s,
            "rows_per_s": self.rows_per_s,
            "latency": self.latency.as_json(),
            "service_latency": self.service_latency.as_json(),
            "shed_latency": self.shed_latency.as_json(),
            "lateness": self.lateness.as_json(),
            "versions": {str(version): count for version, count in self.versions.items()},
            "checked": self.checked,
            "check_failures": dict(self.check_failures),
            "generator_cpu_s": self.generator_cpu_s,
            "interrupted": self.interrupted,
            "timeline": [vars(interval) for interval in self.timeline],
        }


def finite_numbers(value: object) -> object:
    """The same value with null for numbers that JSON lacks: NaN (nothing was measured) and infinity (never)."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite_numbers(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_numbers(each) for each in value]
    return value


def merge_results(parts: Sequence[LoadResult]) -> LoadResult:
    """Merge rounds of one plan: counts and latencies are added, timelines are concatenated."""
    merged = [Latencies() for _ in range(4)]
    errors, versions, failures = Counter[str](), Counter[int](), Counter[str]()
    timeline: list[Interval] = []
    elapsed_s = 0.0
    for part in parts:
        for into, new in zip(
            merged, (part.latency, part.service_latency, part.shed_latency, part.lateness), strict=True
        ):
            into.merge([new])
        errors.update(part.errors)
        versions.update(part.versions)
        failures.update(part.check_failures)
        timeline.extend(Interval(**{**vars(i), "start_s": i.start_s + elapsed_s}) for i in part.timeline)
        elapsed_s += part.elapsed_s
    return LoadResult(
        plan=parts[0].plan,
        elapsed_s=elapsed_s,
        sent=sum(part.sent for part in parts),
        ok=sum(part.ok for part in parts),
        rows=sum(part.rows for part in parts),
        ok_in_time=sum(part.ok_in_time for part in parts),
        rows_in_time=sum(part.rows_in_time for part in parts),
        answer_bytes=sum(part.answer_bytes for part in parts),
        errors=dict(errors),
        latency=merged[0],
        service_latency=merged[1],
        shed_latency=merged[2],
        lateness=merged[3],
        timeline=timeline,
        versions=dict(versions),
        checked=sum(part.checked for part in parts),
        check_failures=dict(failures),
        generator_cpu_s=sum(part.generator_cpu_s for part in parts),
        interrupted=any(part.interrupted for part in parts),
    )
