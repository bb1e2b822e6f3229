"""A real Prometheus before real servers under load: the dashboard's panels have data, percentiles are right."""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.observability import dashboard
from benchmarks.observability.drift import threshold_of
from benchmarks.observability.prometheus import Prometheus, running_prometheus
from benchmarks.observability.traffic import USUAL, Traffic, TrafficTotals
from ghostless.client import CallError, Client, RetryPolicy
from ghostless.contract.errors import ConfigError
from loadtest.programs import find_program
from loadtest.server_process import BenchError, free_port, running_server
from loadtest.workload import ServedModel, find_model
from serving.engines.triton.local_server import INSTALL_COMMAND, find_binary
from serving.telemetry.metric_maker import SECONDS
from tests.support.tritons import add_triton_files, tritons
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "ghostless.json"
TRITONS = re.compile(r"ghostless_(endpoint|breaker)")
REQUEST_BUCKETS = "sum by (le) (ghostless_request_seconds_bucket)"


@dataclass(frozen=True)
class Scraped:
    prometheus: Prometheus
    model: ServedModel
    seen: TrafficTotals
    # Seconds of every request, from the access log.
    logged: list[float]


@pytest.fixture(scope="module")
def scraped(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Two workers on the embedded engine and, where it is installed, a facade before a real Triton, after some load."""
    try:
        find_program("prometheus")
    except BenchError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("scraped")
    root = folder / "repository"
    shutil.copytree(trained, root)
    model, port, log = find_model(root, ""), free_port(), folder / "access.log"
    options = ["--metrics-port", str(port), "--workers", "2", "--access-log", str(log), "--access-log-rate", "1"]
    options += ["--uncertainty-rows-per-s", "1e12"]
    with contextlib.ExitStack() as stack:
        targets = [f"127.0.0.1:{port}"]
        server = stack.enter_context(running_server(root, *options, "--acquisition-log", str(folder / "acquired")))
        if before_triton := stack.enter_context(facade_before_triton(root)):
            targets.append(before_triton)
        prometheus = stack.enter_context(running_prometheus(targets, RULES))
        prometheus.settle()
        seen = Traffic(server.address, model, threshold_of(model)).run(USUAL, 5.0)
        with Client(server.address, timeout_s=10.0, retry=RetryPolicy(max_attempts=1)) as client:
            ask(client, model, version=1)
            with pytest.raises(CallError):
                ask(client, model, version=77)
        prometheus.settle()
        yield Scraped(prometheus, model, seen, logged_seconds(log, seen.requests + 2))


@contextlib.contextmanager
def facade_before_triton(root: Path) -> Iterator[str]:
    """Where its metrics are; empty if there is no Triton here."""
    try:
        find_binary()
    except ConfigError:
        yield ""
        return
    add_triton_files(root)
    port = free_port()
    with tritons(root) as (triton,):
        options = ["--engine", "triton", "--triton", triton.address, "--workers", "1", "--metrics-port", str(port)]
        options += ["--uncertainty-rows-per-s", "1e12"]
        with running_server(root, *options):
            yield f"127.0.0.1:{port}"


def ask(client: Client, model: ServedModel, version: int) -> None:
    arguments = model.rows(8, seed=0).arguments(model.name)
    arguments["version"] = version
    client.predict(**arguments)


def logged_seconds(log: Path, requests: int) -> list[float]:
    eventually(lambda: len(log.read_text().splitlines()) >= requests, f"{requests} requests in the access log")
    return [json.loads(line)["seconds"]["total"] for line in log.read_text().splitlines()]


def bucket_of(seconds: float) -> int:
    return int(np.searchsorted(SECONDS, seconds, side="left"))


def test_every_panel_has_data(scraped: Scraped) -> None:
    has_triton = len(scraped.prometheus.targets) > 1
    empty = []
    for query in dashboard.queries(DASHBOARD, window="1m"):
        if TRITONS.search(query.expression) and not has_triton:
            continue
        samples = scraped.prometheus.query(query.expression)
        if not samples or all(np.isnan(sample.value) for sample in samples):
            empty.append(query)
    assert not empty
    if not has_triton:
        pytest.skip(f"panels of Triton's endpoints left out: no tritonserver here; `{INSTALL_COMMAND}` installs it")


def test_a_query_for_what_is_not_there_is_seen_to_be_empty(scraped: Scraped) -> None:
    assert scraped.prometheus.query("ghostless_no_such_metric") == []
    with pytest.raises(BenchError, match="parse error"):
        scraped.prometheus.query("sum(")


@pytest.mark.parametrize("q", [0.5, 0.99])
def test_percentiles_lie_in_the_bucket_of_the_true_ones(scraped: Scraped, q: float) -> None:
    ours = scraped.prometheus.value(f"histogram_quantile({q}, {REQUEST_BUCKETS})")
    assert scraped.prometheus.value("sum(ghostless_request_seconds_count)") == len(scraped.logged)
    true = float(np.quantile(scraped.logged, q, method="inverted_cdf"))
    assert bucket_of(ours) == bucket_of(true)
    # Clients wait for the server and more. The two requests that they did not time are a rank at most.
    theirs = float(np.quantile(scraped.seen.seconds, min(1.0, q + 3 / len(scraped.logged)), method="inverted_cdf"))
    assert bucket_of(ours) <= bucket_of(theirs)


def test_recorded_series_agree_with_the_clients(scraped: Scraped) -> None:
    prometheus, seen = scraped.prometheus, scraped.seen
    share = prometheus.value('version:ghostless_epistemic_share:mean_rate5m{version="2"}')
    assert share == pytest.approx(seen.mean_share, rel=0.2)
    coverage = {s.labels["level"]: s.value for s in prometheus.query("version_level:ghostless_coverage:ratio_rate1h")}
    offline = seen.coverage()
    assert coverage.keys() == offline.keys()
    for level, expected in offline.items():
        # Rates leave out what came before their first sample, which may be most of these few seconds; the counters'
        # own ratio is exact, and has its test.
        assert coverage[level] == pytest.approx(expected, abs=0.1), level
        gap = prometheus.value(f'version_level:ghostless_coverage_gap:rate1h{{level="{level}"}}')
        assert gap == pytest.approx(expected - float(level), abs=0.1)
    assert prometheus.value("job:ghostless_errors:ratio_rate5m") == 0
    assert prometheus.value("sum(ghostless_ready)") == prometheus.value("sum(ghostless_workers)")


def test_exact_figures_are_in_the_counters(scraped: Scraped) -> None:
    prometheus, seen = scraped.prometheus, scraped.seen
    assert prometheus.value('sum(ghostless_requests_total{code="OK"})') == seen.requests + 1
    assert prometheus.value('sum(ghostless_requests_total{code="NOT_FOUND"})') == 1
    covered = prometheus.query(
        "sum by (level) (ghostless_outcome_covered_rows_total) / sum by (level) (ghostless_outcome_interval_rows_total)"
    )
    assert seen.joined == seen.rows
    assert {s.labels["level"]: s.value for s in covered} == pytest.approx(seen.coverage(), abs=1e-6)
    share = prometheus.value(
        'sum(ghostless_epistemic_share_sum{version="2"}) / sum(ghostless_epistemic_share_count{version="2"})'
    )
    assert share == pytest.approx(seen.mean_share, rel=1e-6)
