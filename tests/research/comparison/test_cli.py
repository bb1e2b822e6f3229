"""`ghostless evaluate table` and `ablation` through the front door, on a small synthetic world."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ghostless.commands.main import main
from learning.config import TrainConfig
from research.comparison import ghost
from tests.support.command_line import Ghostless
from tests.support.waiting import eventually

SMALL = ("--data", "synthetic:2000", "--epochs", "1")


@pytest.fixture
def ghostless(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ghostless:
    folders = ("--cache", tmp_path / "cache", "--out", tmp_path / "out")
    return Ghostless(monkeypatch, capsys, before=["evaluate"], after=folders)


def runs(tmp_path: Path) -> dict[str, int]:
    """When each trained network was finished, by its folder."""
    return {file.parent.name: file.stat().st_mtime_ns for file in tmp_path.glob("cache/*/runs/*/cost.json")}


def test_table_trains_what_is_missing_and_nothing_twice(ghostless: Ghostless, tmp_path: Path) -> None:
    table = ("table", *SMALL, "--methods", "qr,cqr,qr-mcd,qr-ensemble", "--seeds", 2, "--no-tune")
    status, _, err = ghostless(*table)
    assert status == 0, err
    # Seeds 0 to 5: both rows of vanilla QR, and the members of both ensembles.
    first = runs(tmp_path)
    assert len(first) == 6
    text = (tmp_path / "out" / "synthetic.md").read_text()
    assert [line.split(" | ")[0] for line in text.splitlines()[2:6]] == [
        "| Vanilla QR",
        "| CQR",
        "| QR-MCD",
        "| QR-Ensemble",
    ]
    assert (tmp_path / "out" / "results_synthetic.png").read_bytes().startswith(b"\x89PNG")

    lost = next(tmp_path.glob("cache/*/runs/*/cost.json"))
    lost.unlink()
    (lost.parent / "checkpoint.pt").unlink()
    assert ghostless(*table)[0] == 0
    second = runs(tmp_path)
    assert {name for name in second if second[name] != first[name]} == {lost.parent.name}
    assert (tmp_path / "out" / "synthetic.md").read_text().splitlines()[2:6] == text.splitlines()[2:6]

    status, _, _ = ghostless(*table, "--cached-only", "--reconstruction", "paper")
    assert status == 0
    assert runs(tmp_path) == second
    assert not [
        line for line in (tmp_path / "out" / "synthetic-paper.md").read_text().splitlines() if "Vanilla" in line
    ]


def test_tuning_chooses_the_least_validation_nll_and_says_so(ghostless: Ghostless, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Results\n<!-- results: synthetic -->\n<!-- end -->\n")
    status, _, err = ghostless("table", *SMALL, "--methods", "cr", "--seeds", 1, "--update", page)
    assert status == 0, err
    judged = [json.loads(file.read_text()) for file in tmp_path.glob("cache/*/judged/*.json")]
    validation = sorted(figures["nll"] for figures in judged if figures["rows"] == 160)
    assert len(validation) == 6, "a grid of four, then two values of its own knob"
    text = page.read_text()
    assert f"**{validation[0]:.4f}**" in text
    assert "![synthetic](images/results_synthetic.png)" in text
    assert (tmp_path / "images" / "results_synthetic.png").exists()


def test_paper_reconstruction_reads_the_same_networks_otherwise(ghostless: Ghostless, tmp_path: Path) -> None:
    table = ("table", *SMALL, "--methods", "qr,qr-vbll,cr", "--seeds", 1, "--no-tune")
    assert ghostless(*table)[0] == 0
    networks = runs(tmp_path)
    assert ghostless(*table, "--reconstruction", "paper")[0] == 0
    assert runs(tmp_path) == networks

    def nll(file: str) -> dict[str, str]:
        lines = (tmp_path / "out" / file).read_text().splitlines()[2:5]
        return {line.split(" | ")[0].strip("| "): line.split(" | ")[1].strip("*") for line in lines}

    own, paper = nll("synthetic.md"), nll("synthetic-paper.md")
    assert own["Vanilla CR"] == paper["Vanilla CR"]
    assert own["Vanilla QR"] != paper["Vanilla QR"]
    assert own["QR-VBLL"] != paper["QR-VBLL"]


def test_ablation_draws_nll_by_epoch(ghostless: Ghostless, tmp_path: Path) -> None:
    status, _, err = ghostless("ablation", "regularisation", "--data", "synthetic:1500", "--epochs", 2)
    assert status == 0, err
    text = (tmp_path / "out" / "regularisation-synthetic.md").read_text()
    assert "| QR vanilla, bare |" in text
    assert "| NLL, training / test rows, after epoch | 1 | 2 |" in text
    assert (tmp_path / "out" / "results_regularisation-synthetic.png").exists()


def test_ghost_tells_the_mass_between_the_modes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(ghost, "ROWS", 4000)
    monkeypatch.setattr(ghost, "TRAIN", TrainConfig(epochs=4, batch_rows=256, learning_rate=5e-3, test=0.0))
    monkeypatch.setattr(ghost, "KINDS", {name: ghost.KINDS[name] for name in ("Gaussian", "CR-VBLL")})
    monkeypatch.setattr(sys, "argv", ["ghostless", "evaluate", "ghost", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    lines = (tmp_path / "ghost.md").read_text().splitlines()[2:]
    mass = {line.split(" | ")[0].strip("| "): float(line.split(" | ")[1]) for line in lines}
    assert mass["Gaussian"] > 0.25
    assert mass["CR-VBLL"] < 0.05
    assert (tmp_path / "results_ghost.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_one_line(ghostless: Ghostless) -> None:
    status, _, err = ghostless("ablation", "nonsense", *SMALL)
    assert (status, err.count("\n")) == (1, 1)
    assert "no ablation 'nonsense'; expected one of backbone" in err
    status, _, err = ghostless("table", *SMALL, "--methods", "nonsense")
    assert (status, err.count("\n")) == (1, 1)


def test_a_killed_table_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    """Two worker processes, the parent killed hard after the first network, then the same command again."""
    command = [
        sys.executable,
        "-m",
        "ghostless",
        "evaluate",
        "table",
        *SMALL,
        "--methods",
        "qr,cr",
        "--seeds",
        "3",
    ]
    command += ["--no-tune", "--jobs", "2", "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: runs(tmp_path) or started.poll() is not None, "a finished run", timeout_s=120)
    assert started.poll() is None
    children = psutil.Process(started.pid).children(recursive=True)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert len(children) >= 2
    assert not psutil.wait_procs(children, timeout=60)[1], "workers outlive the command that started them"
    before = runs(tmp_path)
    assert before
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    after = runs(tmp_path)
    assert len(after) == 6
    assert {name: after[name] for name in before} == before
