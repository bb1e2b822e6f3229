"""The console's process: started by the first request, restarted when it dies, ended with the server."""

import os
import signal
from http.client import HTTPException
from pathlib import Path

import psutil

from tests.support.http_calls import HttpClient
from tests.support.onnx_models import write_version
from tests.support.processes import ServeProcess, served
from tests.support.waiting import eventually


def console_processes(server: ServeProcess) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children(recursive=True)
    return [child for child in children if "serving.console" in child.cmdline()]


def test_the_process_starts_late_is_replaced_and_ends_with_the_server(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    with served(tmp_path) as server:
        with HttpClient(server) as client:
            assert client.get("/readyz").status == 200
        assert console_processes(server) == []
        with HttpClient(server) as client:
            assert client.get("/v1/models").status == 200
        (process,) = console_processes(server)
        os.kill(process.pid, signal.SIGKILL)

        def answers() -> bool:
            try:
                with HttpClient(server) as client:
                    return client.get("/v1/models").status == 200
            except (OSError, HTTPException):  # it was handed to the process that died
                return False

        eventually(answers)
        (process,) = console_processes(server)
        assert server.stop() == 0
        eventually(lambda: not process.is_running())
        assert server.lines[[line.startswith("console: ") for line in server.lines].index(True) + 1].startswith(
            "ready:"
        )


def test_without_the_console_the_port_has_metrics_and_health_only(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    with served(tmp_path, "--no-console") as server:
        assert "console:" not in server.output
        metrics = next(line for line in server.lines if line.startswith("metrics: "))
        server.lines.append(metrics.replace("metrics: ", "console: "))
        for path, status in (("/metrics", 200), ("/livez", 200), ("/v1/models", 404), ("/", 404)):
            with HttpClient(server) as client:
                assert client.get(path).status == status
        assert console_processes(server) == []


def test_a_killed_server_leaves_no_console_behind(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    with served(tmp_path) as server:
        with HttpClient(server) as client:
            assert client.get("/v2/health/live").status == 200
        (process,) = console_processes(server)
        server.stop(signal.SIGKILL)
        eventually(lambda: not process.is_running())
