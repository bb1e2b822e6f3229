"""`ghostless evaluate pairs` through the front door, on a small synthetic run."""

import json
from pathlib import Path

import pytest

from learning.data.load import load
from learning.training import Trainer
from tests.support.command_line import Ghostless
from tests.support.training import brief_training, small_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("pairs") / "run"
    Trainer(load("synthetic:4000"), "synthetic:4000", small_model(head="cr"), brief_training(), out).run()
    return out


def test_tables_and_a_picture(ghostless: Ghostless, run: Path, tmp_path: Path) -> None:
    status, out, err = ghostless("evaluate", "pairs", run, "--plots", tmp_path / "plots")
    assert status == 0, err
    assert "user_id, pairs of 800 held-out rows" in out
    assert "video_id, pairs of 800 held-out rows" in out
    assert out.count("masked") == 2
    assert (tmp_path / "plots" / "pairs.png").read_bytes().startswith(b"\x89PNG")


def test_json_holds_every_figure(ghostless: Ghostless, run: Path) -> None:
    status, out, err = ghostless("evaluate", "pairs", run, "--json")
    assert status == 0, err

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(out, parse_constant=refuse)
    assert found["rows"] == 800
    assert set(found["effects"]["priors"]) == {"user_id", "video_id"}
    everything = [figure for figure in found["pairs"] if figure["history"] == "all"]
    assert [figure["feature"] for figure in everything] == ["user_id", "video_id"]
    for whole in everything:
        parts = [one for one in found["pairs"] if one["feature"] == whole["feature"] and one["history"] != "all"]
        assert sum(part["pairs"] for part in parts) == whole["pairs"]
    expected = {"ids", "pairs", "measured", "error", "served", "effects", "served_ratio", "effects_ratio", "verdict"}
    assert expected <= set(found["masked"][0])


def test_a_model_without_a_posterior_serves_nothing(ghostless: Ghostless, tmp_path: Path) -> None:
    data = "synthetic:1000"
    Trainer(load(data), data, small_model(method="deterministic"), brief_training(), tmp_path).run()
    status, out, err = ghostless("evaluate", "pairs", tmp_path, "--json", "--plots", tmp_path / "plots")
    assert status == 0, err
    found = json.loads(out)
    assert {figure["served"] for figure in (*found["pairs"], *found["masked"])} == {0.0}
    assert found["plots"] == [str(tmp_path / "plots" / "pairs.png")]


def test_other_data_is_refused(ghostless: Ghostless, run: Path) -> None:
    status, _, err = ghostless("evaluate", "pairs", run, "--data", "synthetic:3000")
    assert status != 0
    assert "is not the data" in err


def test_a_run_without_a_test_part_is_refused(ghostless: Ghostless, tmp_path: Path) -> None:
    Trainer(load("synthetic:500"), "synthetic:500", small_model(), brief_training(test=0.0), tmp_path).run()
    status, _, err = ghostless("evaluate", "pairs", tmp_path)
    assert status != 0
    assert "held nothing out" in err
