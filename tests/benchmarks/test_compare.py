"""`ghostless bench compare`: what is worse beyond its error is found, and nothing else."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compare import Verdict, compare_runs, read_figures
from ghostless.commands.main import main
from loadtest.figures import Figures
from loadtest.server_process import BenchError


def written(path: Path, *figures: tuple[str, float, str, float | None]) -> Path:
    collected = Figures("t")
    for name, value, bound, spread in figures:
        collected.add(name, value, bound, spread=spread)
    collected.save(path)
    return path


def verdict(
    tmp_path: Path, before: tuple[float, float | None], after: tuple[float, float | None], bound: str = "<= 10"
) -> Verdict:
    old, new = (
        read_figures(written(tmp_path / f"{side}.json", ("figure", value, bound, spread)))[0]
        for side, (value, spread) in {"a": before, "b": after}.items()
    )
    return compare_runs(old, new, tolerance=0.03).shared[0].verdict


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["ghostless", "bench", "compare", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("before", "after", "bound", "expected"),
    [
        # Error: 2 sqrt(0.01^2 + 0.01^2) = 0.028.
        ((1.0, 0.01), (1.1, 0.01), "<= 10", Verdict.WORSE),
        ((1.0, 0.01), (0.9, 0.01), "<= 10", Verdict.BETTER),
        ((1.0, 0.01), (0.9, 0.01), ">= 0.5", Verdict.WORSE),
        ((1.0, 0.01), (1.1, 0.01), ">= 0.5", Verdict.BETTER),
        ((1.0, 0.01), (1.1, 0.01), "< 10", Verdict.WORSE),
        ((1.0, 0.01), (0.9, 0.01), "> 0", Verdict.WORSE),
        ((1.0, 0.05), (1.1, 0.05), "<= 10", Verdict.WITHIN_ERROR),
        ((1.0, 0.05), (0.9, 0.05), "<= 10", Verdict.WITHIN_ERROR),
        ((1.0, 0.001), (1.02, 0.001), "<= 10", Verdict.WITHIN_TOLERANCE),
        ((1.0, 0.01), (1.0, 0.01), "<= 10", Verdict.SAME),
        # The error of either stands for both.
        ((1.0, None), (1.1, 0.01), "<= 10", Verdict.WORSE),
        ((1.0, None), (1.1, 0.05), "<= 10", Verdict.WITHIN_ERROR),
        ((1.0, 0.05), (1.1, None), "<= 10", Verdict.WITHIN_ERROR),
        # Measured once: worse for certain only where the bound was crossed.
        ((1.0, None), (1.1, None), "<= 10", Verdict.UNKNOWN_ERROR),
        ((1.0, None), (1.1, None), "<= 1.05", Verdict.WORSE),
        ((1.0, None), (1.1, None), "<= 0.5", Verdict.UNKNOWN_ERROR),
        # Exact figures have no tolerance.
        ((0.0, None), (1.0, None), "== 0", Verdict.WORSE),
        ((0.0, None), (-1.0, None), "== 0", Verdict.WORSE),
        ((2.0, None), (0.0, None), "== 0", Verdict.BETTER),
        ((1.0, None), (1.0, None), "== 0", Verdict.SAME),
        ((1.0, 0.01), (float("nan"), 0.01), "<= 10", Verdict.WORSE),
    ],
)
def test_verdicts(
    tmp_path: Path, before: tuple[float, float | None], after: tuple[float, float | None], bound: str, expected: Verdict
) -> None:
    assert verdict(tmp_path, before, after, bound) is expected


def test_the_exit_status_tells_whether_something_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(tmp_path / "a.json", ("rate", 100.0, ">= 50", 1.0), ("latency", 5.0, "<= 9", 0.1))
    after = written(tmp_path / "b.json", ("rate", 90.0, ">= 50", 1.0), ("latency", 5.1, "<= 9", 0.1))
    assert run(monkeypatch, before, after) == 1
    assert "WORSE" in capsys.readouterr().out
    assert run(monkeypatch, after, before) == 0
    assert run(monkeypatch, before, before) == 0
    assert run(monkeypatch, before, after, "--tolerance", "0.2") == 0


def test_figures_of_one_file_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(tmp_path / "a.json", ("rate", 100.0, ">= 50", None), ("gone", 1.0, "<= 9", None))
    after = written(tmp_path / "b.json", ("rate", 100.0, ">= 50", None), ("new", 1.0, "<= 9", None))
    assert run(monkeypatch, before, after) == 0
    out = capsys.readouterr().out
    assert "only in A: gone" in out
    assert "only in B: new" in out


def test_files_that_share_nothing_are_no_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [written(tmp_path / f"{name}.json", (name, 1.0, "<= 9", None)) for name in ("a", "b")]
    assert run(monkeypatch, *paths) == 1
    assert "share no figure" in " ".join(capsys.readouterr().err.split())


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"figures": [{"name": "x", "value": 1.0, "bound": "<= 2", "ok": True}]}))
    figures, meta = read_figures(old)
    assert (figures[0].spread, meta) == (None, {})


def test_one_name_with_a_bound_on_either_side_is_two_figures(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", ("coverage", 0.9, ">= 0.89", None), ("coverage", 0.9, "<= 0.91", None))
    figures, _ = read_figures(path)
    assert len(compare_runs(figures, figures, 0.03).shared) == 2


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"figures": [{"name": "x"}]}', '{"figures": [{"name": "x", "value": "?"}]}']
)
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(BenchError, match="not a file of figures"):
        read_figures(path)
    with pytest.raises(BenchError, match="can't be read"):
        read_figures(tmp_path / "missing.json")


def test_a_name_used_twice_is_refused(tmp_path: Path) -> None:
    one: dict[str, Any] = {"name": "x", "value": 1.0, "bound": "<= 2", "ok": True}
    path = tmp_path / "twice.json"
    path.write_text(json.dumps({"figures": [one, one]}))
    with pytest.raises(BenchError, match="several figures are called 'x'"):
        read_figures(path)
