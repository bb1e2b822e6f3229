"""What a picture shows, counted on its axes."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ghostless.charts import COLOURS
from research.comparison import pictures
from research.comparison.ablations import AblationResult


def test_every_curve_is_drawn_however_many_there_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures: list[Figure] = []

    def figure(**options: Any) -> Figure:
        figures.append(Figure(**options))
        return figures[-1]

    monkeypatch.setattr(pictures, "Figure", figure)
    curve = ({"epoch": 1, "train": 1.0, "test": 1.1}, {"epoch": 2, "train": 0.9, "test": 1.2})
    many = len(COLOURS) + 1
    results = [AblationResult(f"QR variant {index}", (), curve) for index in range(many)]
    pictures.draw_curves([*results, AblationResult("CR alone", (), curve)], tmp_path / "curves.png", "uber")
    quantiles, bins = figures[0].axes
    # One on training rows and one on test rows each.
    assert (len(quantiles.lines), len(bins.lines)) == (2 * many, 2)
    legend = quantiles.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == many
