"""`ghostless bench scores` as a whole, in short, on a small model whose unknown ids have a larger variance."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import scores
from ghostless.commands.main import main
from ghostless.contract.metadata import FeatureSpec
from tests.support.onnx_models import Recipe, write_version

VIDEOS = Recipe(
    features=(
        FeatureSpec("user_id", "int64", "context", vocabulary=5000),
        FeatureSpec("video_id", "int64", "candidate", vocabulary=2000),
        FeatureSpec("duration_ms", "float32", "candidate"),
    )
)


def test_the_whole_bench_runs_and_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_version(tmp_path / "repository", 1, VIDEOS)
    monkeypatch.setattr(scores, "QUICK", scores.ScoresPlan(users=8, seeds_per_user=4, seeds=500))
    written = tmp_path / "figures.json"
    options = ["--quick", "--repository", str(tmp_path / "repository"), "--json", str(written)]
    monkeypatch.setattr(sys, "argv", ["ghostless", "bench", "scores", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    figures = {figure["name"]: figure for figure in json.loads(written.read_text())["figures"]}
    assert bool(ended.value.code) == (not all(figure["ok"] for figure in figures.values()))
    assert len(figures) == 7
    # What holds of any model; how much is explored depends on its variances.
    exact = [name for name in figures if name.startswith(("UCB: largest", "Thompson: first", "UCB: places"))]
    assert len(exact) == 3
    assert all(figures[name]["ok"] for name in exact), figures
