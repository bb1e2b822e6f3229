"""The pair test as `ghostless train` and `ghostless evaluate` show it, on a small synthetic run."""

import json
from pathlib import Path

import pytest

from learning.checkpoint import Checkpoint
from learning.data.load import load
from learning.training import Trainer
from tests.support.command_line import Ghostless
from tests.support.training import brief_training, small_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("pairs") / "run"
    Trainer(load("synthetic:4000"), "synthetic:4000", small_model(head="cr"), brief_training(), out).run()
    return out


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_tables_and_a_picture(ghostless: Ghostless, run: Path, tmp_path: Path) -> None:
    status, out, err = ghostless("evaluate", run, "--plots", tmp_path / "plots")
    assert status == 0, err
    for name in ("user_id", "video_id"):
        assert f"{name}: variance of the error that rows of one id share, pairs of 800 held-out rows" in " ".join(
            out.split()
        )
    assert out.count("masked") == 2
    assert (tmp_path / "plots" / "pairs.png").read_bytes().startswith(b"\x89PNG")


def test_json_holds_every_figure(ghostless: Ghostless, run: Path) -> None:
    status, out, err = ghostless("evaluate", run, "--json")
    assert status == 0, err
    found = json.loads(out, parse_constant=refuse)["pairs"]
    assert found["rows"] == 800
    whole = [figure for figure in found["figures"] if figure["history"] == "all"]
    assert [figure["feature"] for figure in whole] == ["user_id", "video_id"]
    for every in whole:
        parts = [
            one
            for one in found["figures"]
            if one["feature"] == every["feature"] and one["history"] not in ("all", "masked")
        ]
        assert sum(part["pairs"] for part in parts) == every["pairs"]
    assert {"ids", "pairs", "measured", "error", "served", "ratio", "verdict"} <= set(found["figures"][0])


def test_a_model_without_a_posterior_has_no_pair_test(ghostless: Ghostless, tmp_path: Path) -> None:
    data = "synthetic:1000"
    Trainer(load(data), data, small_model(method="deterministic"), brief_training(), tmp_path).run()
    status, out, err = ghostless("evaluate", tmp_path, "--json")
    assert status == 0, err
    assert json.loads(out)["pairs"] is None


def test_training_stores_the_figures(ghostless: Ghostless, tmp_path: Path) -> None:
    options = ("--data", "synthetic:1500", "--steps", 5, "--hidden", "8,4", "--out", tmp_path / "run")
    status, out, err = ghostless("train", *options, "--json")
    assert status == 0, err
    printed = json.loads(out, parse_constant=refuse)["pairs"]
    stored = Checkpoint.load(tmp_path / "run").pairs
    assert stored is not None
    assert stored.to_dict() == printed
    assert stored.rows == 300
