"""/metrics over HTTP, merged from the files of real processes that wrote them."""

import socket
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from ghostless.contract.errors import ConfigError
from serving.telemetry.exposition import Exposition
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.values import ValueMemory
from tests.support.processes import ROOT
from tests.support.scrape import get, total

# A process that answers `calls` requests, waits with `rows` in its queue, and says who it was.
WORKER = """
import os, sys
from pathlib import Path
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.values import ValueMemory
metrics, (calls, rows) = ServerMetrics(ValueMemory(Path(sys.argv[1]))), map(int, sys.argv[2:])
metrics.requests.requests.labels("Predict", "OK", "demo", "1", "cr").inc(calls)
metrics.requests.request_rows.labels("demo", "1", "cr").observe([rows])
metrics.requests.queue_rows.set(rows)
print(os.getpid())
"""


@pytest.fixture
def exposition(tmp_path: Path) -> Iterator[Exposition]:
    exposition = Exposition("127.0.0.1", 0, tmp_path)
    yield exposition
    exposition.stop()


def work(directory: Path, calls: int, rows: int) -> int:
    """The pid of a process that did, and ended."""
    command = [sys.executable, "-c", WORKER, str(directory), str(calls), str(rows)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return int(run.stdout)


def url(exposition: Exposition, path: str = "/metrics") -> str:
    return f"http://127.0.0.1:{exposition.port}{path}"


def test_processes_are_added_up_and_what_ended_ones_counted_stays(exposition: Exposition, tmp_path: Path) -> None:
    first, second = work(tmp_path, 5, 10), work(tmp_path, 7, 30)
    assert total(url(exposition), "requests_total") == 12
    assert total(url(exposition), "queue_rows") == 40
    exposition.remove_process(first)
    assert total(url(exposition), "requests_total") == 12
    assert total(url(exposition), "request_rows_count") == 2
    assert total(url(exposition), "queue_rows") == 30
    exposition.remove_process(second)
    exposition.remove_process(second)
    assert total(url(exposition), "requests_total", code="OK") == 12
    assert total(url(exposition), "request_rows_sum") == 40
    assert total(url(exposition), "request_rows_bucket", le="16.0") == 1
    assert total(url(exposition), "queue_rows") == 0
    # However many come and go, their files do not pile up.
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_killed_as_it_began_is_neither_read_nor_left_over(
    exposition: Exposition, tmp_path: Path
) -> None:
    """Its file is there, and has no size yet."""
    work(tmp_path, 5, 10)
    (tmp_path / "1-0.new").touch()
    assert total(url(exposition), "requests_total") == 5
    exposition.remove_process(1)
    assert total(url(exposition), "requests_total") == 5
    assert not list(tmp_path.glob("1-*"))


def test_every_metric_says_what_it_means(exposition: Exposition, tmp_path: Path) -> None:
    work(tmp_path, 5, 10)
    assert (
        "# HELP ghostless_cancelled_total Calls that the client cancelled, or whose connection closed, before "
        "the response was sent." in get(url(exposition))
    )


def test_it_is_healthy_and_knows_its_paths(exposition: Exposition) -> None:
    assert get(url(exposition, "/-/healthy")) == "ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(url(exposition, "/other"))


def test_a_client_that_says_nothing_keeps_nobody_waiting(exposition: Exposition) -> None:
    with socket.create_connection(("127.0.0.1", exposition.port)):
        assert get(url(exposition, "/-/healthy")) == "ok\n"


def test_a_taken_port_is_one_clear_error(exposition: Exposition, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't listen on 127.0.0.1:.* choose another port with --metrics-port"):
        Exposition("127.0.0.1", exposition.port, tmp_path)


def test_it_listens_on_ipv6(tmp_path: Path) -> None:
    exposition = Exposition("[::1]", 0, tmp_path)
    assert get(f"http://[::1]:{exposition.port}/-/healthy") == "ok\n"
    exposition.stop()


def test_ready_follows_the_workers(exposition: Exposition, tmp_path: Path) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(url(exposition, "/-/ready"))
    assert refused.value.code == 503
    metrics = ServerMetrics(ValueMemory(tmp_path))
    metrics.models.ready.set(1)
    assert get(url(exposition, "/-/ready")) == "1 workers are ready\n"
    metrics.models.ready.set(0)
    with pytest.raises(urllib.error.HTTPError):
        get(url(exposition, "/-/ready"))
