import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import psutil
import pytest

from tests.support.grpc_calls import stub_on
from tests.support.onnx_models import write_version
from tests.support.processes import ROOT, ServeProcess, served
from tests.support.running import predict_request
from tests.support.scrape import metrics_url, total
from tests.support.waiting import eventually


def _workers(server: ServeProcess) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children()


def _ask(server: ServeProcess) -> int:
    """A connection of its own each time, so that a worker is chosen anew."""
    with grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        return int(stub_on(channel).Predict(predict_request(2), timeout=10).rows)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_version(tmp_path, 1)
    return tmp_path


def test_workers_share_the_port_and_all_drain(repository: Path) -> None:
    with served(repository, "--workers", "2") as server:
        workers = _workers(server)
        assert len(workers) == 2
        assert all(_ask(server) == 2 for _ in range(20))
        assert server.stop() == 0
        assert server.output.count("drained") == 2
        assert not any(worker.is_running() for worker in workers)


def test_a_dead_worker_is_replaced_and_the_port_serves_on(repository: Path) -> None:
    with served(repository, "--workers", "2") as server:
        victim, survivor = _workers(server)
        os.kill(victim.pid, signal.SIGKILL)
        server.wait_for("starting another")
        eventually(lambda: len(_workers(server)) == 2, "two workers again")
        eventually(lambda: server.output.count("is in service") == 3, "the new worker's model")
        eventually(lambda: total(metrics_url(server), "ready") == 2, "two workers that are ready")
        assert all(_ask(server) == 2 for _ in range(20))
        assert survivor.is_running()
        assert server.stop(signal.SIGINT) == 0


def test_a_repository_that_can_not_be_served_ends_all_workers_with_one_clear_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ghostless",
        "serve",
        "--repository",
        str(tmp_path),
        "--workers",
        "3",
    ]
    run = subprocess.run([*command, "--port", "0"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith(f"error: {tmp_path} has no model that can be served")
    assert "Traceback" not in run.stderr


def test_workers_do_not_outlive_their_supervisor(repository: Path) -> None:
    with served(repository, "--workers", "2") as server:
        workers = _workers(server)
        server.process.kill()
        server.process.wait()
        _, alive = psutil.wait_procs(workers, timeout=20)
        assert alive == []
