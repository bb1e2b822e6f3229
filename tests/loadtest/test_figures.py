import json
from pathlib import Path

import pytest

from loadtest.figures import Figures


@pytest.mark.parametrize(
    ("value", "bound", "ok"),
    [
        (1.25, "<= 1.25", True),
        (1.26, "<= 1.25", False),
        (4.0, ">= 4.0", True),
        (3.99, ">= 4.0", False),
        (0, "== 0", True),
        (1, "== 0", False),
        (2.0, "< 2", False),
        (float("nan"), "<= 1", False),
        (float("nan"), ">= 1", False),
    ],
)
def test_a_figure_is_held_against_its_bound(value: float, bound: str, ok: bool) -> None:
    assert Figures("t").add("figure", value, bound).ok is ok


def test_all_figures_within_their_bounds_end_well_and_are_written(tmp_path: Path) -> None:
    figures = Figures("t")
    figures.add("ratio", 1.2, "<= 1.25")
    figures.finish(tmp_path / "out" / "figures.json")
    written = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert written == {"figures": [{"name": "ratio", "value": 1.2, "bound": "<= 1.25", "ok": True}]}


def test_one_figure_short_exits_non_zero_but_is_written(tmp_path: Path) -> None:
    figures = Figures("t")
    figures.add("ratio", 1.2, "<= 1.25")
    figures.add("speed-up", 3.0, ">= 4.0")
    with pytest.raises(SystemExit) as ended:
        figures.finish(tmp_path / "figures.json")
    assert ended.value.code == 1
    assert [figure["ok"] for figure in json.loads((tmp_path / "figures.json").read_text())["figures"]] == [True, False]


def test_no_figures_at_all_is_a_failure() -> None:
    with pytest.raises(SystemExit):
        Figures("t").finish(None)
