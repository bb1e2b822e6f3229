"""Bursts of load: how many requests succeed in each one, and how quickly the server recovers."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from loadtest.generator.plan import LoadPlan, RateStep
from loadtest.generator.result import LoadResult
from loadtest.generator.run import LoadProgress, run_load
from loadtest.scenarios.recovery import Stretch, recovery_s, stretch

_INTERVAL_S = 0.25


@dataclass(frozen=True)
class SpikePlan:
    """`spikes` bursts of `spike_s` seconds at `times` the plan's rate, and `rest_s` at that rate before, between and
    after."""

    times: float = 10.0
    spikes: int = 3
    spike_s: float = 2.0
    rest_s: float = 10.0

    def steps(self, rate_per_s: float) -> tuple[RateStep, ...]:
        rest = RateStep(self.rest_s, rate_per_s)
        return (rest, *(self.spikes * (RateStep(self.spike_s, self.times * rate_per_s), rest)))

    def starts_s(self) -> list[float]:
        return [self.rest_s + place * (self.spike_s + self.rest_s) for place in range(self.spikes)]


@dataclass(frozen=True)
class Spike:
    start_s: float
    burst: Stretch
    recovery_s: float


@dataclass(frozen=True)
class SpikeReport:
    run: LoadResult
    before: Stretch
    spikes: tuple[Spike, ...]

    def as_json(self) -> dict[str, object]:
        spikes = [
            {
                "start_s": spike.start_s,
                "offered_per_s": spike.burst.due / spike.burst.seconds,
                "goodput_per_s": spike.burst.goodput_per_s,
                "shed": spike.burst.shed,
                "worst_ms": 1000 * spike.burst.worst_s,
                "recovery_s": spike.recovery_s,
            }
            for spike in self.spikes
        ]
        return {"spikes": spikes, "p50_before_ms": 1000 * self.before.p50_s, "run": self.run.as_json()}


def run_spikes(
    plan: LoadPlan, shape: SpikePlan, on_progress: Callable[[LoadProgress], None] | None = None
) -> SpikeReport:
    """Run the bursts. The plan's rate is the load between them; the duration follows from `shape`."""
    steps = shape.steps(plan.rate_per_s)
    run = run_load(replace(plan, rate_per_s=0.0, steps=steps, interval_s=_INTERVAL_S), on_progress)
    before = stretch(run.timeline, 0.0, shape.rest_s)
    spikes = []
    for start_s in shape.starts_s():
        ended_s = start_s + shape.spike_s
        burst = stretch(run.timeline, start_s, ended_s)
        spikes.append(Spike(start_s, burst, recovery_s(run.timeline, ended_s, ended_s + shape.rest_s, before)))
    return SpikeReport(run, before, tuple(spikes))
