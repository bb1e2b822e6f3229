"""`ghostless bench interleave`: its clock, its samples, and one short run of a checkout against itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.interleave import command
from benchmarks.interleave.checkouts import other_checkout
from benchmarks.turns import Sample, Slice
from ghostless.commands.main import main
from loadtest.h2load import find_h2load
from loadtest.server_process import BenchError, ServerProcess
from tests.support import onnx_models

CHECKOUT = Path(__file__).parents[2]
_BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ntime.sleep(60)\n"


def test_cpu_time_is_that_of_all_processes_of_the_session() -> None:
    # A parent that burns 0.3 s and a child that does the same.
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {_BURN!r}])\n{_BURN}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        for _ in range(2):
            assert process.stdout.readline() == b"done\n"
        server = ServerProcess(process, 0, 0.0).group
        used = server.cpu_s()
        ticks = sum(_ticks(pid) for pid in server.processes())
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()
    assert 0.6 <= used < 2.0
    # /proc/PID/stat says the same, in ticks.
    assert used == pytest.approx(ticks / os.sysconf("SC_CLK_TCK"), abs=0.05)


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_sample_counts_all_requests_of_its_slices() -> None:
    sample = Sample.of([Slice(0.5, 1.0, np.full(100, 0.01)), Slice(0.3, 1.0, np.full(300, 0.02))])
    assert sample.cpu_per_request_s == pytest.approx(0.8 / 400)
    assert sample.requests_per_s == pytest.approx(200)
    assert sample.p50_s == pytest.approx(0.02)


def test_a_folder_without_ghostless_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="make install"):
        other_checkout(tmp_path)


def test_a_checkout_against_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_h2load()
    except BenchError as missing:
        pytest.skip(str(missing))
    onnx_models.write_version(tmp_path / "models", 1)
    # A copy without .venv, so that it runs on this Python.
    other = tmp_path / "other"
    other.mkdir()
    for package in ("ghostless", "serving", "learning", "export", "loadtest", "benchmarks"):
        (other / package).symlink_to(CHECKOUT / package)
    a, b, ratios = (tmp_path / f"{name}.json" for name in ("a", "b", "ratios"))
    monkeypatch.setattr(command, "SIZES", (1, 64))
    options = ["--rounds", "1", "--slices", "1", "--repository", tmp_path / "models"]
    options += ["--json-a", a, "--json-b", b, "--json", ratios]
    monkeypatch.setattr(sys, "argv", ["ghostless", "bench", "interleave", str(other), *map(str, options)])
    with pytest.raises(SystemExit):
        main()
    figures = [{f["name"]: f["value"] for f in json.loads(path.read_text())["figures"]} for path in (a, b)]
    assert figures[0].keys() == figures[1].keys()
    # A request costs more than a microsecond and less than a second, on any machine.
    for side in figures:
        assert 1 < side["64 rows: CPU per request, us"] < 1e6
        assert side["64 rows: requests/s"] > 1
        assert side["64 rows: p50, ms"] <= side["64 rows: p99, ms"]
    judged = {f["name"]: f for f in json.loads(ratios.read_text())["figures"]}
    assert judged["responses that differ between A and B"]["value"] == 0
    assert judged["1 rows: CPU per request, us, B / A"]["bound"] == "<= 1.03"
