"""The commands as a user runs them: a process, its exit status, what it prints."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.commands import listeners
from tests.support.scripted_server import ScriptedServicer
from tests.support.scripted_servicers import serving
from tests.support.waiting import eventually

COMMAND = [sys.executable, "-m", "ghostless", "loadtest"]
TIMEOUT_S = 120


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_run_prints_rates_and_percentiles_and_writes_json(tmp_path: Path) -> None:
    with serving(ScriptedServicer()) as address:
        options = [
            "--address",
            address,
            "--rate",
            "60",
            "--duration",
            "1",
            "--candidates",
            "5-8",
            "--deadline-ms",
            "5000",
        ]
        ended = _run("run", *options, "--arrivals", "constant", "--json", str(tmp_path / "deep" / "result.json"))
    assert ended.returncode == 0, ended.stderr
    assert "60 requests in 1.0 s: 60.0 sent/s of 60.0 scheduled" in ended.stdout
    assert "from the scheduled send time" in ended.stdout
    written = json.loads((tmp_path / "deep" / "result.json").read_text())
    assert (written["sent"], written["ok"], written["errors"]) == (60, 60, {})
    assert written["latency"]["p99_ms"] >= written["latency"]["p50_ms"] > 0
    assert written["shed_latency"]["p99_ms"] is None


def test_ctrl_c_gives_what_was_seen_so_far() -> None:
    servicer = ScriptedServicer()
    with serving(servicer) as address:
        options = ["--address", address, "--rate", "50", "--duration", "600", "--candidates", "4", "--json", "-"]
        # `env`: a shell that runs the tests in the background has them ignore the signal, and children inherit that.
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *COMMAND, "run", *options],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        eventually(lambda: len(servicer.requests) >= 100, "100 requests", TIMEOUT_S)
        # As a terminal does it: to the whole group, the generator's processes included.
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    result = json.loads(output)
    assert result["interrupted"] is True
    assert 0 < result["ok"] <= len(servicer.requests)
    assert result["elapsed_s"] < 600


def test_spike_reports_each_burst() -> None:
    with serving(ScriptedServicer()) as address:
        options = ["--address", address, "--rate", "20", "--times", "4", "--spikes", "1", "--spike-s", "0.5"]
        ended = _run("spike", *options, "--rest-s", "1", "--candidates", "4", "--deadline-ms", "5000", "--json", "-")
    assert ended.returncode == 0, ended.stderr
    (spike,) = json.loads(ended.stdout)["spikes"]
    assert spike["start_s"] == 1.0
    assert spike["offered_per_s"] == pytest.approx(80, abs=30)
    assert "recovered after s" in ended.stderr


def test_a_wrong_plan_or_an_absent_server_is_one_line() -> None:
    for arguments, complaint in (
        (["run"], "needs a rate"),
        (["run", "--address", "127.0.0.1:1", "--rate", "1"], "127.0.0.1:1"),
    ):
        ended = _run(*arguments)
        assert ended.returncode == 1
        assert complaint in ended.stderr
        assert "Traceback" not in ended.stderr


def test_the_servers_processes_are_found_by_their_port() -> None:
    with serving(ScriptedServicer()) as address:
        assert listeners(address) == [os.getpid()]
    assert listeners("192.0.2.1:80") == []
