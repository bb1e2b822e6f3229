"""The stages of `ghostless bench serve`; each adds its figures with their bounds."""

import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serve.perf_analyzer import find_perf_analyzer, run_perf_analyzer
from benchmarks.serve.reload import reload_under_load
from ghostless.client import Client
from ghostless.client.calls import predict_call
from loadtest.bare_session import BareCores, median_latency_s
from loadtest.figures import Figures
from loadtest.h2load import Generator
from loadtest.server_process import running_server
from loadtest.workload import Rows, ServedModel, largest_difference

CONCURRENCY = 8


@dataclass(frozen=True)
class ServePlan:
    """How long to measure. The bounds do not depend on it."""

    starts: int
    rounds: int
    round_s: int
    latency_requests: int
    answers: int
    steady_s: float


FULL = ServePlan(starts=5, rounds=5, round_s=4, latency_requests=1000, answers=40, steady_s=3.0)
QUICK = ServePlan(starts=2, rounds=3, round_s=1, latency_requests=300, answers=10, steady_s=0.5)


@dataclass(frozen=True)
class ServeBench:
    """State shared by all stages."""

    repository: Path
    model: ServedModel
    h2load: str
    plan: ServePlan
    figures: Figures

    def say(self, text: str) -> None:
        self.figures.console.print(text, highlight=False)

    def generator(self, address: str, rows: Rows) -> Generator:
        """A generator for these rows; one checked response first gives the size of a correct one."""
        call = predict_call(rows.arguments(self.model.name))
        with Client(address, timeout_s=10.0) as client:
            answered = client.predict(**rows.arguments(self.model.name))
        expected = self.model.infer(rows)
        largest_difference(answered, expected)
        return Generator(self.h2load, call.request, 4 * sum(values.size for values in expected.values()))


def measure_starts(bench: ServeBench) -> None:
    bench.say(f"start to ready, {bench.plan.starts} times")
    ready_s, torch_libraries, unclean = [], 0, 0
    for _ in range(bench.plan.starts):
        with running_server(bench.repository) as server:
            ready_s.append(server.start_to_ready_s)
            torch_libraries += len(server.torch_libraries())
            unclean += server.stop() != 0
    bench.figures.add("start to ready, median s", statistics.median(ready_s), "< 3", samples=ready_s)
    bench.figures.add("torch libraries in the serving processes", torch_libraries, "== 0")
    bench.figures.add("SIGTERM not followed by exit status 0", unclean, "== 0")


def measure_answers(bench: ServeBench, address: str) -> None:
    bench.say("comparing responses with the graph's outputs")
    model, batches = bench.model, [1, 2, 7, 256, 1000]

    def difference(seed: int) -> float:
        rows = model.rows(batches[seed % len(batches)], seed)
        with Client(address, timeout_s=30.0) as client:
            return largest_difference(client.predict(**rows.arguments(model.name)), model.infer(rows))

    alone = max(difference(seed) for seed in range(bench.plan.answers))
    bench.figures.add("largest difference from the graph, one request at a time", alone, "== 0")
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        together = max(pool.map(difference, range(CONCURRENCY * bench.plan.answers)))
    bench.figures.add(f"largest difference from the graph, {CONCURRENCY} at a time", together, "<= 1e-5")


def measure_throughput(bench: ServeBench, address: str, cores: BareCores, candidates: int, bound: float) -> None:
    bench.say(f"throughput at {candidates} candidates, concurrency {CONCURRENCY}, compared with bare ONNX Runtime")
    rows = bench.model.rows(candidates, seed=0)
    generator, feeds = bench.generator(address, rows), rows.feeds()
    shares = []
    for _ in range(bench.plan.rounds):
        bare = cores.rows_per_s(feeds, bench.plan.round_s)
        served = generator.throughput(address, CONCURRENCY, bench.plan.round_s).requests_per_s * candidates
        bench.say(f"  bare {bare:,.0f} rows/s, served {served:,.0f} rows/s")
        shares.append(served / bare)
    name = f"rows/s at {candidates} candidates, relative to bare ONNX Runtime"
    bench.figures.add(name, statistics.median(shares), f">= {bound}", samples=shares)


def measure_latency(bench: ServeBench, address: str) -> None:
    bench.say("latency at 256 candidates, concurrency 1, compared with bare ONNX Runtime")
    rows = bench.model.rows(256, seed=0)
    generator, feeds = bench.generator(address, rows), rows.feeds()
    over_ms = []
    for _ in range(bench.plan.rounds):
        bare_s = median_latency_s(bench.model.session, bench.model.outputs, feeds, bench.plan.latency_requests)
        served_s = generator.median_latency_s(address, bench.plan.latency_requests)
        bench.say(f"  p50: bare {1000 * bare_s:.3f} ms, served {1000 * served_s:.3f} ms")
        over_ms.append(1000 * (served_s - bare_s))
    bench.figures.add(
        "p50 above bare inference at concurrency 1, ms", statistics.median(over_ms), "<= 1.0", samples=over_ms
    )


def measure_perf_analyzer(bench: ServeBench, address: str) -> None:
    program = find_perf_analyzer()
    if program is None:
        bench.say("perf_analyzer skipped: it is neither on PATH nor in .tools/bin")
        return
    bench.say(f"perf_analyzer over the Open Inference Protocol, 256 candidates, concurrency {CONCURRENCY}")
    outcome = run_perf_analyzer(program, bench.model, address, 256, CONCURRENCY)
    if outcome.requests_per_s is None:
        bench.say(f"  {outcome.last_words}")
    else:
        bench.say(f"  {outcome.requests_per_s:,.0f} requests/s")
    bench.figures.add("perf_analyzer's exit status", outcome.exit_status, "== 0")


def measure_single_candidate(bench: ServeBench) -> None:
    bench.say(f"1 candidate, 2 workers, concurrency {CONCURRENCY}")
    with running_server(bench.repository, "--workers", "2") as server:
        generator = bench.generator(server.address, bench.model.rows(1, seed=0))
        rates = [
            generator.throughput(server.address, CONCURRENCY, bench.plan.round_s).requests_per_s
            for _ in range(bench.plan.rounds)
        ]
    bench.figures.add("requests/s at 1 candidate, 2 workers", statistics.median(rates), ">= 3000", samples=rates)


def measure_reload(bench: ServeBench) -> None:
    bench.say("hot reload of a new version under load")
    seen = reload_under_load(bench.model, bench.plan.steady_s)
    counts = ", ".join(f"version {version}: {count}" for version, count in sorted(seen.versions.items()))
    bench.say(f"  responses by {counts}" + (f"; first failure: {seen.failures[0]}" if seen.failures else ""))
    bench.figures.add("failed requests during hot reload", len(seen.failures), "== 0")
    bench.figures.add("versions that answered during hot reload", len(seen.versions), "== 2")
