"""`ghostless train` and `ghostless evaluate` through the front door."""

import json
from pathlib import Path

import pytest

from learning.checkpoint import FILE
from tests.support.command_line import Ghostless

BRIEF = ("--data", "synthetic:3000", "--epochs", "1", "--batch-rows", "512", "--bins", "12")


@pytest.fixture
def trained(ghostless: Ghostless, tmp_path: Path) -> Path:
    status, _, err = ghostless("train", *BRIEF, "--head", "cr", "--out", tmp_path / "run")
    assert status == 0, err
    return tmp_path / "run"


def test_train_prints_one_json_object_and_keeps_its_figures(ghostless: Ghostless, tmp_path: Path) -> None:
    status, out, _ = ghostless("train", *BRIEF, "--head", "qr", "--out", tmp_path / "run", "--json")
    figures = json.loads(out)
    assert status == 0
    assert figures["checkpoint"] == str(tmp_path / "run")
    assert (figures["rows"], figures["train_rows"], figures["epochs"]) == (600, 2160, 1)
    assert 1.0 < figures["nll"] < 2.5
    kept = json.loads((tmp_path / "run" / "run.json").read_text())["metrics"]
    assert kept["nll"] == figures["nll"]


def test_train_takes_the_networks_shape_and_the_steps(ghostless: Ghostless, tmp_path: Path) -> None:
    brief = ("--data", "synthetic:3000", "--steps", "4", "--head", "cr", "--decay", "0.001", "--json")
    network = ("--hidden", "24,12", "--activation", "relu", "--dropout", "0.2", "--backbone", "sn+cross")
    status, out, err = ghostless("train", *brief, *network, "--out", tmp_path / "run")
    assert status == 0, err
    assert json.loads(out)["steps"] == 4
    kept = json.loads((tmp_path / "run" / "run.json").read_text())
    shape = {name: kept["model"][name] for name in ("hidden", "activation", "dropout", "backbone")}
    assert shape == {"hidden": [24, 12], "activation": "relu", "dropout": 0.2, "backbone": "sn+cross"}
    assert (kept["train"]["steps"], kept["train"]["embedding_decay"]) == (4, 0.001)


def test_few_live_units_are_warned_about(ghostless: Ghostless, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    live = json.loads(ghostless("train", *BRIEF, "--out", tmp_path / "a", "--json")[1])["live_units"]
    assert 0.5 < live <= 1.0
    monkeypatch.setattr("learning.cli.FEW_LIVE_UNITS", 1.1)
    _, out, _ = ghostless("train", *BRIEF, "--out", tmp_path / "b")
    assert "hidden units vary with the input" in " ".join(out.split())


def test_train_prints_a_table(ghostless: Ghostless, tmp_path: Path) -> None:
    status, out, _ = ghostless("train", *BRIEF, "--head", "cr", "--out", tmp_path / "run")
    assert status == 0
    assert "cr-vbll on synthetic:3000" in out
    assert all(name in out for name in ("nll", "ece", "crps", "rmse", "coverage_90"))


class TestEvaluate:
    def test_judges_the_rows_that_training_held_out(self, ghostless: Ghostless, trained: Path) -> None:
        status, out, _ = ghostless("evaluate", trained, "--json")
        figures = json.loads(out)
        assert status == 0
        assert figures["nll"] == json.loads((trained / "run.json").read_text())["metrics"]["nll"]
        assert figures["rows"] == 600
        assert [bucket["history"] for bucket in figures["epistemic_by_history"]][:2] == ["0", "1-2"]

    def test_draws_pictures(self, ghostless: Ghostless, trained: Path, tmp_path: Path) -> None:
        status, out, _ = ghostless("evaluate", trained, "--plots", tmp_path / "plots", "--json")
        names = sorted(Path(path).name for path in json.loads(out)["plots"])
        assert status == 0
        assert names == ["densities.png", "history.png", "mean.png", "pairs.png", "pit.png", "reliability.png"]
        assert all((tmp_path / "plots" / name).read_bytes().startswith(b"\x89PNG") for name in names)

    def test_other_data_only_as_a_whole(self, ghostless: Ghostless, trained: Path) -> None:
        status, _, err = ghostless("evaluate", trained, "--data", "synthetic:1000")
        assert status == 1
        assert "--all" in err
        status, out, _ = ghostless("evaluate", trained, "--data", "synthetic:1000", "--all", "--json")
        assert (status, json.loads(out)["rows"]) == (0, 1000)


class TestSkipExisting:
    def test_a_finished_run_is_left_alone(self, ghostless: Ghostless, trained: Path) -> None:
        before = (trained / FILE).stat().st_mtime_ns
        status, out, _ = ghostless("train", *BRIEF, "--head", "cr", "--out", trained, "--skip-existing")
        assert (status, (trained / FILE).stat().st_mtime_ns) == (0, before)
        assert "nothing to do" in out

    def test_where_there_is_none_it_trains(self, ghostless: Ghostless, tmp_path: Path) -> None:
        assert ghostless("train", *BRIEF, "--out", tmp_path / "run", "--skip-existing")[0] == 0
        assert (tmp_path / "run" / FILE).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "--data", "nowhere.csv"), "nowhere.csv"),
        (("train", "--data", "kuairand:nowhere"), "nowhere"),
        (("train", "--data", "synthetic:many"), "many"),
        (("train", "--data", "toy", "--levels", "7"), "multiple of groups"),
        (("train", "--data", "toy", "--epochs", "0"), "epochs"),
        (("train", "--data", "toy", "--epochs", "2", "--steps", "9"), "not both"),
        (("train", "--data", "toy", "--steps", "0"), "steps"),
        (("train", "--data", "toy", "--hidden", "64x32"), "64x32"),
        (("train", "--data", "toy", "--patience", "-1"), "patience"),
        (("train", "--data", "toy", "--test", "1.5"), "test"),
        (("evaluate", "no/such/run"), "no such checkpoint"),
        (("bench", "truth"), "GHOSTLESS_DATA"),
        (("bench", "learning", "--data", "no/such/folder"), "kuairand_pure"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_1(
    ghostless: Ghostless, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GHOSTLESS_DATA", raising=False)
    status, _, err = ghostless(*arguments)
    assert status == 1
    assert err.startswith("error: ")
    assert said in err
    assert len(err.strip().splitlines()) == 1
