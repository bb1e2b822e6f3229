"""The pool loop through its command: curves, resumption, reports; and the curves' arithmetic by hand."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from ghostless.contract.errors import ConfigError
from learning.evaluation import evaluate
from research.active.curves import Curve
from research.active.loop import Run, Step
from research.active.setup import Setup
from tests.learning.test_learning_cli import Ghostless
from tests.learning.test_learning_cli import ghostless as ghostless  # a fixture

WORDS = ("active", "--data", "synthetic:2000", "--epochs", "1", "--step", "0.25", "--seeds", "1", "--test-rows", "300")


def step(labels: int, nll: float) -> Step:
    return Step(labels, labels / 100, nll, nll / 5, nll + 0.1, nll / 4, 10, 1.0, 0.5, 1000, 2.0, 1.5, 0.8)


def curve(label: str, *nlls: list[float]) -> Curve:
    return Curve(label, tuple(tuple(step(20 + 10 * i, nll) for i, nll in enumerate(seed)) for seed in nlls))


class TestCurve:
    falling = curve("hybrid:0.1", [1.3, 1.1, 0.9], [1.5, 1.3, 1.1])

    def test_mean_deviation_and_cost(self) -> None:
        assert self.falling.mean("nll").tolist() == pytest.approx([1.4, 1.2, 1.0])
        assert self.falling.deviation("nll").tolist() == pytest.approx([0.1, 0.1, 0.1])
        assert self.falling.labels.tolist() == [20, 30, 40]
        assert self.falling.scoring_seconds() == pytest.approx(5.0)
        assert self.falling.bought("chosen_epistemic") == 2.0

    def test_labels_to_reach(self) -> None:
        assert self.falling.labels_to_reach("nll", 1.1) == pytest.approx(35.0)
        assert self.falling.labels_to_reach("nll", 1.4) == 20.0
        assert self.falling.labels_to_reach("nll", 1.0) == 40.0
        assert math.isnan(self.falling.labels_to_reach("nll", 0.9))

    def test_gain_is_paired_by_seed(self) -> None:
        random = curve("random", [1.3, 1.2, 1.0], [1.5, 1.4, 1.3])
        mean, error = self.falling.gain(random, "nll")
        assert mean == pytest.approx(0.15)
        assert error == pytest.approx(np.std([0.1, 0.2], ddof=1) / np.sqrt(2))


class TestSetup:
    def test_labels_go_by_steps(self) -> None:
        assert Setup("synthetic").labels(1000) == [200, 300, 400, 500, 600, 700]

    @pytest.mark.parametrize("wrong", [{"start": 0.0}, {"start": 0.8}, {"stop": 1.2}, {"step": 0.0}])
    def test_shares_must_make_sense(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ConfigError, match="--start"):
            Setup("synthetic", **wrong)  # type: ignore[arg-type]  # shares, checked by Setup

    def test_pool_test_and_cold_users(self) -> None:
        setup = Setup("synthetic:3000", pool_rows=1000, test_rows=200, cold=2)
        material = setup.material(0)
        assert (material.pool.rows, material.test.rows) == (1000, 200)
        users, counts = np.unique(material.pool.columns["user_id"], return_counts=True)
        seen = dict(zip(users.tolist(), counts.tolist(), strict=True))
        expected = [seen.get(user, 0) <= 2 for user in material.test.columns["user_id"].tolist()]
        assert material.cold.tolist() == expected
        assert 0 < sum(expected) < 200


def test_curves_reports_and_a_second_call_that_trains_nothing(ghostless: Ghostless, tmp_path: Path) -> None:
    places = ("--cache", tmp_path / "cache", "--out", tmp_path / "out")
    words = (*WORDS, "--strategies", "random,hybrid:0.1,bald-mcd", *places)
    status, out, err = ghostless(*words)
    assert status == 0, err
    assert "labels to reach NLL of" in out
    table = (tmp_path / "out" / "synthetic-qr.md").read_text()
    assert all(name in table for name in ("random", "hybrid:0.1", "bald-mcd", "all labels"))
    assert (tmp_path / "out" / "active_synthetic-qr.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / "synthetic-qr.csv").open() as file:
        lines = list(csv.DictReader(file))
    by_strategy = {name: [line for line in lines if line["strategy"] == name] for name in ("random", "hybrid:0.1")}
    assert [int(line["labels"]) for line in by_strategy["random"]] == [320, 720, 1120]
    # All begin with the same labels and so with the same model; then they part.
    first = {name: float(rows[0]["nll"]) for name, rows in by_strategy.items()}
    assert first["random"] == first["hybrid:0.1"]
    assert by_strategy["random"][-1]["nll"] != by_strategy["hybrid:0.1"][-1]["nll"]
    assert float(by_strategy["hybrid:0.1"][0]["chosen_epistemic"]) > 1.0
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.json")}
    assert ghostless(*words, "--cached-only")[0] == 0
    assert ghostless(*words)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_a_run_goes_on_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup("synthetic:2000", epochs=1, step=0.25, test_rows=300)
    whole, cut = (Run(setup, tmp_path / name, "epistemic", "top", 0) for name in ("whole", "cut"))
    whole()

    def interrupt(*_: object) -> None:
        if cut.file.exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # Comes between a step's training and its record.
        patch.setattr("research.active.loop.evaluate", lambda *parts: interrupt() or evaluate(*parts))
        with pytest.raises(KeyboardInterrupt):
            cut()
    assert not cut.done
    assert len(cut.steps()) == 1
    cut()
    assert cut.done
    assert [one.nll for one in cut.steps()] == [one.nll for one in whole.steps()]


def test_mistakes_are_one_line(ghostless: Ghostless, tmp_path: Path) -> None:
    for words, said in (
        (("--strategies", "best"), "no strategy 'best'"),
        (("--strategies", ""), "--strategies is empty"),
        (("--start", "0.9"), "--start"),
        (("--cached-only",), "no finished runs"),
    ):
        status, _, err = ghostless(*WORDS, *words, "--cache", tmp_path / "cache", "--out", tmp_path / "out")
        assert status == 1
        assert said in err
        assert len(err.strip().splitlines()) == 1
