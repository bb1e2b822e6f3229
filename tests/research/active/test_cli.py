"""`ghostless active` through the front door: curves, reports, and mistakes in one line."""

import csv
from pathlib import Path

from tests.support.command_line import Ghostless

WORDS = ("active", "--data", "synthetic:2000", "--epochs", "1", "--step", "0.25", "--seeds", "1", "--test-rows", "300")


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
