"""`ghostless loadtest report`, as a user types it."""

import subprocess
import sys
from pathlib import Path

from loadtest.report.cost import Prices
from loadtest.report.files import write_report
from tests.support.comparisons import example


def ghostless(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ghostless", "loadtest", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_other_prices_make_another_report(tmp_path: Path) -> None:
    write_report(example(), Prices(), tmp_path / "first")
    ended = ghostless("report", str(tmp_path / "first"), "--out", str(tmp_path / "second"), "--peak-rate", "36000")
    assert ended.returncode == 0, ended.stderr
    # 36,000 requests/s at 70% of 720 requests/s on two cores.
    assert "143" in (tmp_path / "second" / "report.html").read_text()
    assert (tmp_path / "first" / "report.json").read_text() == (tmp_path / "second" / "report.json").read_text()


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    ended = ghostless("report", str(tmp_path / "nothing"))
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "create it with `ghostless loadtest compare`" in ended.stderr
