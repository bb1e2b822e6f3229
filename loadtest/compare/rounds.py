"""Measures the variants in turn: throughput at saturation, latency at offered rates, highest rate within an
objective."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loadtest import resources
from loadtest.compare.cores import CoreSplit, on_cores
from loadtest.compare.findings import Measured, Point
from loadtest.compare.search import RateSearch
from loadtest.compare.servers import EngineName, RunningVariant
from loadtest.generator.latencies import Latencies
from loadtest.generator.plan import LoadPlan, RequestMix
from loadtest.generator.requests import PreparedLoad, prepare_load
from loadtest.generator.result import LoadResult
from loadtest.generator.run import run_load

# The highest offered rate, as a multiple of the variant's throughput; beyond it the queue would only grow.
_BEYOND = 1.1
_WARM_UP_S = 0.5
_DEADLINE_S = 2.0


@dataclass(frozen=True)
class Settings:
    engine: EngineName = "embedded"
    candidates: int = 256
    objective_ms: float = 50.0
    rounds: int = 3
    round_s: float = 3.6
    # A machine's speed changes over time, so many short turns are more reliable than one long one.
    round_turns: int = 6
    engine_round_s: float = 0.3
    # Offered rates for all variants, as shares of the fastest variant's throughput, and seconds at each rate.
    shares: tuple[float, ...] = (0.02, 0.06, 0.15, 0.35, 0.6, 0.85)
    probe_s: float = 2.0
    search_steps: int = 3
    concurrency: int = 8
    seed: int = 0


@dataclass(frozen=True)
class Rounds:
    """Puts load on one server at a time; the others are suspended meanwhile."""

    settings: Settings
    cores: CoreSplit
    measured: Mapping[str, Measured]
    servers: Sequence[RunningVariant]
    say: Callable[[str], None]
    # Prepared requests by variant; preparing them takes longer than some of the turns.
    _prepared: dict[str, PreparedLoad] = field(default_factory=dict, init=False, repr=False)

    def saturate(self) -> None:
        """Measure the throughput in closed loops. A round consists of several short turns of each server."""
        for number in range(self.settings.rounds):
            turns: dict[str, list[_Saturated]] = {server.variant.name: [] for server in self.servers}
            for _ in range(self.settings.round_turns):
                for server in self.servers:
                    turns[server.variant.name].append(self._saturate_once(server))
            for name, taken in turns.items():
                into = self.measured[name]
                _add_round(into, taken)
                self.say(
                    f"saturation, round {number + 1} of {self.settings.rounds}: {into.title} "
                    f"{into.saturated_per_s[-1]:,.0f} requests/s"
                )

    def _saturate_once(self, server: RunningVariant) -> "_Saturated":
        cpu_s, (ran, runs) = resources.cpu_seconds(server.pids), server.batches.read()
        result = self._closed(server, self.settings.round_s / self.settings.round_turns)
        cpu_s = resources.cpu_seconds(server.pids) - cpu_s
        ran_now, runs_now = server.batches.read()
        return _Saturated(result, cpu_s, resources.memory_mb(server.pids), ran_now - ran, runs_now - runs)

    def curves(self) -> list[float]:
        """Measure latency at the same offered rates for all variants, up to the limit of each; returns the rates."""
        fastest = max(into.throughput_per_s for into in self.measured.values())
        rates = [share * fastest for share in self.settings.shares]
        for rate in rates:
            for server in self._answering():
                if rate <= _BEYOND * self.measured[server.variant.name].throughput_per_s:
                    self._probe(server, rate)
        return rates

    def search(self) -> None:
        """Find the highest rate within the objective, by bisection for each variant, starting from its latency curve.

        Probes are short, and other load on the machine can spoil one, so a surprising failure is repeated.
        """
        searches = {}
        for server in self._answering():
            into = self.measured[server.variant.name]
            search = searches[server.variant.name] = RateSearch(fails=_BEYOND * into.throughput_per_s)
            objective_ms = self.settings.objective_ms
            highest = max((point.rate_per_s for point in into.points if point.holds(objective_ms)), default=0.0)
            for point in into.points:
                spoiled = point.rate_per_s < highest and not point.holds(objective_ms)
                held = self._holds(server, point.rate_per_s) if spoiled else point.holds(objective_ms)
                search.learn(point.rate_per_s, held)
        for _ in range(self.settings.search_steps):
            for server in self._answering():
                rate = searches[server.variant.name].next_rate()
                searches[server.variant.name].learn(rate, self._holds(server, rate) or self._holds(server, rate))
        for name, search in searches.items():
            self.measured[name].rate_at_objective = search.holds

    def _answering(self) -> list[RunningVariant]:
        """The variants that returned correct responses at saturation; the others have no rate to probe."""
        return [server for server in self.servers if self.measured[server.variant.name].throughput_per_s]

    def _holds(self, server: RunningVariant, rate: float) -> bool:
        return self._probe(server, rate).holds(self.settings.objective_ms)

    def _probe(self, server: RunningVariant, rate: float) -> Point:
        plan = LoadPlan(
            server.address,
            arrivals="poisson",
            rate_per_s=rate,
            duration_s=self.settings.probe_s,
            warm_up_s=_WARM_UP_S,
            deadline_s=_DEADLINE_S,
            mix=self._mix(server),
            seed=self.settings.seed,
        )
        result = self._run(server, plan)
        point = Point(
            rate_per_s=rate,
            goodput_per_s=result.goodput_per_s,
            p50_ms=_milliseconds(result.latency, 50),
            p99_ms=_milliseconds(result.latency, 99),
            failed_share=result.failed / max(result.sent, 1),
        )
        into = self.measured[server.variant.name]
        into.add(point)
        self.say(f"{into.title} at {rate:,.0f} requests/s: p50 {point.p50_ms:.1f} ms, p99 {point.p99_ms:.1f} ms")
        return point

    def _closed(self, server: RunningVariant, seconds: float) -> LoadResult:
        plan = LoadPlan(
            server.address,
            arrivals="closed",
            concurrency=self.settings.concurrency,
            duration_s=seconds,
            # No warm-up, because CPU time is also counted from the start.
            warm_up_s=0.0,
            deadline_s=_DEADLINE_S,
            mix=self._mix(server),
            seed=self.settings.seed,
        )
        return self._run(server, plan)

    def _mix(self, server: RunningVariant) -> RequestMix:
        return RequestMix(model=server.variant.model, candidates=(self.settings.candidates, self.settings.candidates))

    def _run(self, server: RunningVariant, plan: LoadPlan) -> LoadResult:
        others = [pid for other in self.servers if other is not server for pid in other.pids]
        name = server.variant.name
        with on_cores(self.cores.generator), resources.suspended(others):
            if name not in self._prepared:
                self._prepared[name] = prepare_load(plan)
            result = run_load(plan, prepared=self._prepared[name])
        if result.interrupted:
            raise KeyboardInterrupt
        failures = self.measured[name].check_failures
        for what, count in result.check_failures.items():
            failures[what] = failures.get(what, 0) + count
        return result


@dataclass(frozen=True)
class _Saturated:
    """One turn of a server: the result of the load, and the CPU time and batches of the server."""

    result: LoadResult
    cpu_s: float
    memory_mb: float
    batch_rows: float
    batches: float


def _add_round(into: Measured, turns: Sequence[_Saturated]) -> None:
    ok, rows = sum(turn.result.ok for turn in turns), sum(turn.result.rows for turn in turns)
    batches = sum(turn.batches for turn in turns)
    into.saturated_per_s.append(statistics.mean(turn.result.goodput_per_s for turn in turns))
    into.cpu_s_per_million_rows.append(1e6 * sum(turn.cpu_s for turn in turns) / max(rows, 1))
    into.memory_mb.append(max(turn.memory_mb for turn in turns))
    if batches:
        into.batch_rows.append(sum(turn.batch_rows for turn in turns) / batches)
    into.answer_bytes = sum(turn.result.answer_bytes for turn in turns) / max(ok, 1)


def _milliseconds(latency: Latencies, percentile: float) -> float:
    """A percentile in ms; if no response came in time, the deadline, as a lower bound."""
    return 1000 * (latency.percentile_s(percentile) if latency.count else _DEADLINE_S)
