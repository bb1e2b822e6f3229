"""The stages of `ghostless bench observability`; each adds its figures with their bounds."""

import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.observability import overhead
from benchmarks.observability.cost import seconds_per_request
from benchmarks.observability.drift import DriftScenario, drifting
from benchmarks.observability.paired_load import ROUND_S
from benchmarks.observability.picture import draw
from benchmarks.observability.prometheus import Prometheus, running_prometheus
from benchmarks.observability.traffic import DRIFTED, IN_SECONDS, NEW_USERS, NEW_VIDEOS, USUAL, TrafficKind
from ghostless.client import CallError, Client, RetryPolicy
from loadtest.figures import Figures
from loadtest.server_process import free_port, running_server
from loadtest.workload import ServedModel

CONCURRENCY = 8
WORKERS = 4
CANDIDATES = 256
# So many candidates that the transport of the response hardly counts.
LARGE = 2000
SURGE, COVERAGE = "GhostlessOutOfDistributionSurge", "GhostlessCoverageDrift"
OUT_OF_RANGE, UNKNOWN_IDS = "GhostlessOutOfRangeSurge", "GhostlessUnknownIdsRise"


@dataclass(frozen=True)
class ObservabilityPlan:
    """How long to measure. The bounds do not depend on it."""

    requests: int
    phase_s: float
    rounds: int
    latency_requests: int
    passes: int


FULL = ObservabilityPlan(requests=4000, phase_s=15.0, rounds=240, latency_requests=1000, passes=400)
QUICK = ObservabilityPlan(requests=800, phase_s=5.0, rounds=40, latency_requests=300, passes=100)


@dataclass(frozen=True)
class ObservabilityBench:
    """State shared by all stages."""

    repository: Path
    model: ServedModel
    h2load: str
    plan: ObservabilityPlan
    figures: Figures
    rules: Path
    picture: Path | None = None

    def say(self, text: str) -> None:
        self.figures.console.print(text, highlight=False)


def measure_counts(bench: ObservabilityBench) -> None:
    bench.say(
        f"{WORKERS} workers, {bench.plan.requests} requests on {CONCURRENCY} connections, every fourth one invalid"
    )
    port = free_port()
    with (
        running_server(bench.repository, "--workers", str(WORKERS), "--metrics-port", str(port)) as server,
        running_prometheus([f"127.0.0.1:{port}"], bench.rules) as prometheus,
    ):
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            rows = sum(pool.map(lambda seed: _send(bench, server.address, seed), range(CONCURRENCY)))
        prometheus.settle()
        counted = {s.labels["code"]: s.value for s in prometheus.query("sum by (code) (ghostless_requests_total)")}
        counted_rows = prometheus.value("sum(ghostless_rows_total)")
        workers = len(prometheus.query("ghostless_process_resident_bytes"))
    each = bench.plan.requests // CONCURRENCY
    wrong = CONCURRENCY * len(range(0, each, 4))
    sent = {"OK": CONCURRENCY * each - wrong, "INVALID_ARGUMENT": wrong}
    off = sum(abs(sent.get(code, 0) - counted.get(code, 0.0)) for code in sent.keys() | counted.keys())
    bench.figures.add(f"requests counted wrongly, of {CONCURRENCY * each}, by code", off, "== 0")
    bench.figures.add(f"rows counted wrongly, of {rows}", abs(counted_rows - rows), "== 0")
    bench.figures.add("workers that report", workers, f"== {WORKERS}")


def _send(bench: ObservabilityBench, address: str, seed: int) -> int:
    """Send requests on a separate connection; returns the number of rows that were answered."""
    rows = 0
    with Client(address, timeout_s=10.0, retry=RetryPolicy(max_attempts=1)) as client:
        for number in range(bench.plan.requests // CONCURRENCY):
            arguments = bench.model.rows(1 + number % 16, seed).arguments(bench.model.name)
            if number % 4 == 0:
                arguments["thresholds"] = [float("nan")]
            try:
                rows += client.predict(**arguments).rows
            except CallError:
                continue
    return rows


def measure_p99(bench: ObservabilityBench) -> None:
    plan, port = bench.plan, free_port()
    bench.say(f"p99 of {plan.latency_requests} requests of {LARGE} candidates, one at a time, compared with h2load")
    with (
        running_server(bench.repository, "--metrics-port", str(port)) as server,
        running_prometheus([f"127.0.0.1:{port}"], bench.rules) as prometheus,
    ):
        load = overhead.generator(bench.h2load, server.address, bench.model, LARGE, overhead.OTHER_ID)
        theirs = float(np.quantile(load.latencies_s(server.address, plan.latency_requests), 0.99))
        prometheus.settle()
        ours = prometheus.value("histogram_quantile(0.99, sum by (le) (ghostless_request_seconds_bucket))")
    bench.say(f"  Prometheus {1000 * ours:.2f} ms, inside the server; h2load {1000 * theirs:.2f} ms, as a client")
    # Neighbouring buckets differ by up to a factor of 1.5.
    bench.figures.add("p99 by Prometheus and by h2load, larger / smaller", max(ours / theirs, theirs / ours), "<= 1.5")


def measure_drift(bench: ObservabilityBench) -> None:
    plan = bench.plan
    bench.say(f"drift: 4 x {plan.phase_s:g} s of traffic and outcomes, scraped by Prometheus")
    with drifting(bench.repository, bench.model, plan.phase_s, bench.rules) as drift:
        _judge_figures(bench, drift)
        _judge_drift(bench, drift)
        if bench.picture is not None:
            draw(drift, bench.picture)
            bench.say(f"  plot: {bench.picture}")


def _judge_figures(bench: ObservabilityBench, drift: DriftScenario) -> None:
    """Compare the values in Prometheus with those that the clients computed from their responses."""
    figures, prometheus, seen = bench.figures, drift.prometheus, drift.seen
    bench.say(f"  {seen.requests} requests and {seen.rows} rows answered")
    figures.add("requests counted minus requests answered", _counted(prometheus) - seen.requests, "== 0")
    share = prometheus.value("sum(ghostless_epistemic_share_sum) / sum(ghostless_epistemic_share_count)")
    figures.add(
        "epistemic share, relative difference from the clients' value", abs(share / seen.mean_share - 1), "<= 1e-6"
    )
    rate = prometheus.value("sum(ghostless_out_of_distribution_rows_total) / sum(ghostless_uncertainty_rows_total)")
    expected = seen.out_of_distribution / seen.rows
    figures.add("out-of-distribution rate, difference from the clients' value", abs(rate - expected), "<= 1e-6")
    figures.add("outcomes not joined", seen.rows - seen.joined, "== 0")
    covered = prometheus.query(
        "sum by (level) (ghostless_outcome_covered_rows_total) / sum by (level) (ghostless_outcome_interval_rows_total)"
    )
    online, offline = {s.labels["level"]: s.value for s in covered}, seen.coverage()
    worst = max(abs(online.get(level, np.nan) - offline.get(level, np.nan)) for level in online.keys() | offline.keys())
    figures.add(f"coverage of {len(offline)} intervals, largest difference from the offline value", worst, "<= 1e-6")


def _judge_drift(bench: ObservabilityBench, drift: DriftScenario) -> None:
    figures = bench.figures
    rates, shares = {}, {}
    for kind in (USUAL, NEW_USERS, DRIFTED):
        rates[kind] = drift.during(kind, "ghostless_out_of_distribution_rows_total")
        shares[kind] = drift.during(kind, "ghostless_epistemic_share_sum")
        covered = drift.during(
            kind,
            'ghostless_outcome_covered_rows_total{level="0.9"}',
            'ghostless_outcome_interval_rows_total{level="0.9"}',
        )
        bench.say(
            f"  {kind.name}: out of distribution {rates[kind]:.2%}, epistemic share {shares[kind]:.3%}, "
            f"coverage of the 90% interval {covered:.1%}"
        )
    figures.add("out-of-distribution rate, traffic as in training", rates[USUAL], "<= 0.005")
    figures.add("out-of-distribution rate, drifted traffic", rates[DRIFTED], ">= 0.1")
    figures.add("epistemic share, new users / traffic as in training", shares[NEW_USERS] / shares[USUAL], ">= 1.5")
    figures.add("epistemic share, drifted traffic / traffic as in training", shares[DRIFTED] / shares[USUAL], ">= 2")
    before, after = drift.of(USUAL).alerts, drift.of(DRIFTED).alerts
    figures.add("alerts before the drift", len(before), "== 0")
    for alert in (SURGE, COVERAGE):
        figures.add(f"{alert}: expression true under drift", alert in after, "== 1")


def measure_single_causes(bench: ObservabilityBench) -> None:
    """Change one thing at a time and check that only its own alert becomes active. Each case has a new server, because
    the alerts look back over minutes."""
    phase_s = bench.plan.phase_s
    for kind, role in ((NEW_USERS, "context"), (NEW_VIDEOS, "candidate"), (IN_SECONDS, "")):
        bench.say(f"{kind.name}: 2 x {phase_s:g} s of traffic, scraped by Prometheus")
        with drifting(bench.repository, bench.model, phase_s, bench.rules, kinds=(USUAL, kind)) as drift:
            if role:
                _judge_unknown_ids(bench, drift, kind, role)
            else:
                _judge_unit(bench, drift, kind)


def _judge_unknown_ids(bench: ObservabilityBench, drift: DriftScenario, kind: TrafficKind, role: str) -> None:
    own, others = (
        {f.name for f in bench.model.features if f.vocabulary and (f.role == role) is same} for same in (True, False)
    )
    alarmed = drift.of(kind).features(UNKNOWN_IDS)
    bench.figures.add(
        f"{kind.name}: active unknown-ids alerts for {_listed(own)}", len(alarmed & own), f"== {len(own)}"
    )
    bench.figures.add(f"{kind.name}: active unknown-ids alerts for {_listed(others)}", len(alarmed & others), "== 0")
    bench.figures.add(f"{kind.name}: active out-of-range alerts", len(drift.of(kind).features(OUT_OF_RANGE)), "== 0")


def _judge_unit(bench: ObservabilityBench, drift: DriftScenario, kind: TrafficKind) -> None:
    numbers = [feature.name for feature in bench.model.features if not feature.vocabulary]
    rates = {
        each: {name: drift.during(each, f'ghostless_out_of_range_rows_total{{feature="{name}"}}') for name in numbers}
        for each in (USUAL, kind)
    }
    name = max(numbers, key=lambda feature: rates[kind][feature])
    surge = drift.during(kind, "ghostless_out_of_distribution_rows_total")
    bench.say(f"  s^2 is above its threshold for {surge:.2%} of the rows")
    bench.figures.add(
        f"share of {name} outside its training range, traffic as in training", rates[USUAL][name], "<= 0.005"
    )
    bench.figures.add(f"share of {name} outside its training range, changed unit", rates[kind][name], "> 0.9")
    alarmed = drift.of(kind)
    bench.figures.add(f"{OUT_OF_RANGE}: expression true for {name}", name in alarmed.features(OUT_OF_RANGE), "== 1")
    bench.figures.add(f"{kind.name}: active unknown-ids alerts", len(alarmed.features(UNKNOWN_IDS)), "== 0")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _counted(prometheus: Prometheus) -> float:
    return prometheus.value('sum(ghostless_requests_total{code="OK"})')


def measure_overhead(bench: ObservabilityBench) -> None:
    plan = bench.plan
    bench.say(
        f"throughput at {CANDIDATES} candidates, concurrency {CONCURRENCY}, everything on compared with metrics off"
    )
    with tempfile.TemporaryDirectory() as name, overhead.both_servers(bench.repository, Path(name)) as servers:
        load, stored = (
            overhead.generator(bench.h2load, servers.on.address, bench.model, CANDIDATES, request_id)
            for request_id in (overhead.OTHER_ID, overhead.STORED_ID)
        )
        request_s = load.median_latency_s(servers.off.address, plan.latency_requests)
        share = overhead.compare(load, stored, servers, Path(name), CONCURRENCY, plan.rounds)
    bench.say(
        f"  off {share.first:,.0f} requests/s, on {share.second:,.0f}: {share.value:.4f} +- {share.margin:.4f}, "
        f"{plan.rounds} rounds of {ROUND_S:g} s each"
    )
    name, spread = "throughput with everything on, relative to metrics off", share.margin / 1.96
    bench.figures.add(name, share.value, ">= 0.95", spread=spread)
    cost_s = seconds_per_request(bench.repository, bench.model, CANDIDATES, plan.passes)
    bench.say(f"  a request takes {1e6 * request_s:.0f} us, its uncertainty metrics {1e6 * cost_s:.1f} us")
    bench.figures.add(
        f"cost of the uncertainty metrics relative to a {CANDIDATES}-row request", cost_s / request_s, "< 0.03"
    )
