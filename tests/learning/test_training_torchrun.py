"""Two processes that share their batches learn what one learns alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPTIONS = ("--data", "synthetic:6000", "--head", "cr", "--epochs", "3", "--batch-rows", "512", "--bins", "12", "--json")
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ghostless")


def train(out: Path, *python: str) -> dict[str, float]:
    command = [sys.executable, *python, "train", *OPTIONS, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1, "only the first process speaks"
    figures: dict[str, float] = json.loads(lines[0])
    return figures


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    alone, together = train(tmp_path / "alone", "-m", "ghostless"), train(tmp_path / "together", *TWO)
    assert together["train_rows"] == alone["train_rows"]
    # The rows of every step are the same; dropout and rounding are not.
    assert together["nll"] == pytest.approx(alone["nll"], abs=0.02)
    assert together["crps"] == pytest.approx(alone["crps"], rel=0.02)
