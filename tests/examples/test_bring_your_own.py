"""examples/bring-your-own and the commands of docs/bring-your-own.md, as written but with fewer rows, through a real
server to the client."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import ArrayLike

from ghostless.client import Client
from learning.data.synthetic import SyntheticVideos
from tests.support.processes import ROOT, served

PAGE = (ROOT / "docs" / "bring-your-own.md").read_text()
# Fewer rows and steps than on the page; nothing else is changed.
BRIEF = {
    "--data synthetic ": "--data synthetic:3000 --steps 40 ",
    "--trained-on": "--steps 40 --trained-on",
    "somebody_elses_ranker.py\n": "somebody_elses_ranker.py 4000\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example after all commands of the page."""
    place = tmp_path_factory.mktemp("example") / "bring-your-own"
    shutil.copytree(ROOT / "examples" / "bring-your-own", place)
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        commands = block
        for written, brief in BRIEF.items():
            commands = commands.replace(written, brief)
        assert commands != block
        run(place, "sh", "-e", "-c", commands)
    return place


def run(place: Path, *words: str) -> str:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_both_models_are_served_and_answer_the_client(folder: Path) -> None:
    candidates: dict[str, ArrayLike] = {"video_id": np.arange(5), "duration_ms": np.full(5, 20_000.0, np.float32)}
    seen = {
        "tower": SyntheticVideos(seed=0).sample(3000, seed=0).columns["user_id"],
        "fitted": pq.read_table(folder / "fresh.parquet")["user_id"].to_numpy(),
    }
    with served(folder / "repository") as server, Client(server.address, timeout_s=10.0) as client:
        for model, users in seen.items():
            known, unknown = (
                client.predict(context={"user_id": user}, candidates=candidates, model=model)
                for user in (int(np.bincount(users).argmax()), 10**9)
            )
            for answer in (known, unknown):
                assert answer.mean is not None
                assert answer.quantiles is not None
                assert answer.mean.shape == (5,)
                assert np.isfinite(answer.quantiles).all()
                assert (np.diff(answer.quantiles, axis=1) >= 0).all()
            # What is not known about a new user.
            assert known.epistemic is not None
            assert unknown.epistemic is not None
            assert (unknown.epistemic > known.epistemic).all()


def test_the_own_loop_is_calibrated(folder: Path) -> None:
    out = run(folder, sys.executable, "own_loop.py")
    found = re.search(r"coverage of 90% intervals: ([\d.]+)", out)
    assert found is not None
    assert float(found[1]) == pytest.approx(0.9, abs=0.02)
    assert "pair test: disagrees" not in out


def test_the_page_shows_lines_of_the_examples() -> None:
    """What the page says in five lines is in the example, but for names."""
    loop = (ROOT / "examples" / "bring-your-own" / "own_loop.py").read_text()
    for call in (
        "UncertainRanker(Hidden(), width=32, targets=train.target)",
        "ranker.loss(",
        "ranker.finish([features]",
    ):
        assert call in PAGE
        assert call in loop
    tower = (ROOT / "examples" / "bring-your-own" / "two_tower.py").read_text()
    for method in re.findall(r"def \w+", PAGE):
        assert method in tower
