"""Several worker processes, scraped at one place: no call is lost or counted twice, whoever dies."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import psutil
import pytest

from tests.support.grpc_calls import stub_on
from tests.support.onnx_models import write_version
from tests.support.processes import ServeProcess, served
from tests.support.running import predict_request
from tests.support.scrape import metrics_url, total
from tests.support.waiting import eventually

ROWS = 3


def ask(server: ServeProcess, calls: int, channels: int = 16) -> None:
    """On many connections, so that the kernel spreads them over the workers; one in ten calls is malformed."""

    def some(count: int) -> None:
        with grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = stub_on(channel)
            for index in range(count):
                request = predict_request(ROWS)
                if index % 10 == 9:
                    request.candidates["duration"].Clear()
                    with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
                        stub.Predict(request, timeout=20)
                else:
                    stub.Predict(request, timeout=20)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, [calls // channels] * channels))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    root = tmp_path / "models"
    write_version(root, 1)
    return root


def test_counts_are_exact_with_four_workers_and_after_one_was_killed(repository: Path) -> None:
    with served(repository, "--workers", "4", "--uncertainty-rows-per-s", "1e12") as server:
        url = metrics_url(server)
        ask(server, 1600)
        # At once: a call is counted before its answer leaves.
        assert total(url, "requests_total") == 1600
        assert total(url, "requests_total", code="OK") == 1440
        assert total(url, "requests_total", code="INVALID_ARGUMENT") == 160
        eventually(lambda: total(url, "rows_total") == ROWS * 1440)
        assert total(url, "request_seconds_count") == 1600
        assert total(url, "epistemic_share_count") == ROWS * 1440
        assert total(url, "workers") == total(url, "ready") == 4
        pids = [worker.pid for worker in psutil.Process(server.process.pid).children()]
        os.kill(pids[0], signal.SIGKILL)
        server.wait_for("starting another")
        eventually(lambda: total(url, "ready") == 4)
        assert total(url, "requests_total") == 1600
        ask(server, 480)
        assert total(url, "requests_total") == 2080
        eventually(lambda: total(url, "rows_total") == ROWS * (1440 + 432))
        assert total(url, "workers") == 4
        assert server.stop() == 0
    assert list(repository.parent.glob("ghostless-*")) == []


def test_one_worker_is_exposed_too_and_metrics_can_be_off(repository: Path) -> None:
    with served(repository) as server:
        url = metrics_url(server)
        ask(server, 32)
        assert total(url, "requests_total") == 32
        assert total(url, "model_info", in_service="true", model_method="vbll", model="demo") == 1
        assert total(url, "model_load_seconds") > 0
        assert total(url, "process_resident_bytes", pid=str(server.process.pid)) > 1e7
        assert server.stop() == 0
    with served(repository, "--metrics-port", "0") as server:
        ask(server, 32)
        assert "metrics:" not in server.output
        assert server.stop() == 0
    assert list(repository.parent.glob("ghostless-*")) == []
