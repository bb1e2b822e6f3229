"""What is shown of curves given by hand."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from research.active.curves import Curve
from research.active.loop import LearningStep
from research.active.report import draw, markdown
from research.active.setup import Setup

STEP = LearningStep(20, 0.2, 1.3, 0.25, 1.4, 0.3, 10, 1.0)


def curves(first: LearningStep) -> list[Curve]:
    steps = (first, replace(first, labels=40, share=0.4, nll=1.1))
    return [Curve(label, (steps,)) for label in ("random", "epistemic")]


@pytest.mark.parametrize(
    ("cold_rows", "panels"), [(10, ["NLL", "CRPS", "cold-start NLL"]), (0, ["NLL", "CRPS"])], ids=["some", "none"]
)
def test_cold_rows_are_shown_where_there_are_any(cold_rows: int, panels: list[str], tmp_path: Path) -> None:
    found = curves(STEP if cold_rows else replace(STEP, cold_nll=math.nan, cold_crps=math.nan, cold_rows=0))
    figure = draw(found, tmp_path / "curves.png", "test")
    assert [axes.get_ylabel() for axes in figure.axes] == panels
    text = markdown(found, Setup("test"), 100)
    assert ("cold-start" in text) == bool(cold_rows)
    assert "nan" not in text
