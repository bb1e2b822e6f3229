"""Log messages say which process they are of, as text and as JSON."""

import json
import logging
import os
import re
import signal
from pathlib import Path

import psutil

from serving.logs import JsonFormatter, worker_number
from tests.support.onnx_models import write_version
from tests.support.processes import served


def test_a_message_with_its_traceback_is_one_line_of_json() -> None:
    failure = (ValueError, ValueError("wrong\nin two lines"), None)
    record = logging.LogRecord("serving.x", logging.ERROR, "x.py", 1, "%s failed", ("it",), failure)
    record.processName, record.process = "worker-3", 77
    line = JsonFormatter().format(record)
    assert "\n" not in line
    content = json.loads(line)
    assert content.pop("time").endswith("+00:00")
    assert "wrong\nin two lines" in content.pop("exception")
    assert content == {
        "level": "error",
        "process": "worker-3",
        "pid": 77,
        "worker": 3,
        "logger": "serving.x",
        "message": "it failed",
    }


def test_the_only_process_is_worker_0() -> None:
    assert [worker_number(name) for name in ("server", "supervisor", "worker-12")] == [0, 0, 12]


def test_every_line_of_a_server_is_json_with_pid_and_worker(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    with served(tmp_path, "--workers", "2", "--log-format", "json") as server:
        pids = {worker.pid for worker in psutil.Process(server.process.pid).children()}
        assert server.stop() == 0
    lines = [json.loads(line) for line in server.lines]
    assert {line["pid"] for line in lines if line["message"] == "drained"} == pids
    assert {line["process"] for line in lines} == {"supervisor", "worker-0", "worker-1"}
    assert [line["process"] for line in lines if line["message"].startswith("ready: serving")] == ["supervisor"]


def test_text_names_the_process_too(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    with served(tmp_path, "--workers", "2") as server:
        worker = psutil.Process(server.process.pid).children()[0]
        os.kill(worker.pid, signal.SIGTERM)
        server.wait_for("starting another")
    assert re.search(rf" INFO worker-\d {worker.pid} serving\.server: drained", server.output)
    assert re.search(rf" ERROR supervisor {server.process.pid} serving\.workers: worker \d", server.output)
