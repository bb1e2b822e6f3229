"""Shows the pair test: a table per id feature, and a plot of served against measured variance."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.table import Table as RichTable

from ghostless.charts import COLOURS, DPI, MARKERS, TEXT, TRUTH, style_axes
from ghostless.contract.pair_test import ALL, MASKED, STANDARD_ERRORS, PairFigure, PairTest


def pair_tables(found: PairTest) -> list[RichTable]:
    """One table per id feature, by history."""
    return [_table(found, name) for name in dict.fromkeys(figure.feature for figure in found.figures)]


def _table(found: PairTest, name: str) -> RichTable:
    title = f"{name}: variance of the error that rows of one id share, pairs of {found.rows:,} held-out rows"
    table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("history")
    for heading in ("pairs", "measured", "+-", "served", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for figure in found.of(name):
        variances = (figure.measured, figure.error, figure.served)
        table.add_row(
            figure.history,
            f"{figure.pairs:,}",
            *(f"{value:.5f}" if value == 0 or abs(value) >= 1e-4 else f"{value:.1e}" for value in variances),
            f"{figure.ratio:.2f}" if np.isfinite(figure.ratio) else "-",
            figure.verdict,
        )
    return table


def draw_pairs(figures: Sequence[PairFigure], path: Path, title: str) -> Path | None:
    """Plot one point per id feature and history bucket, masked ids as open markers; on the diagonal, served equals
    measured.

    Figures that log scales can't show (measured or served is 0 or less) are omitted; returns None if no figure remains.
    """
    drawn = [figure for figure in figures if figure.history != ALL and min(figure.measured, figure.served) > 0]
    if not drawn:
        return None
    picture = Figure(figsize=(6.4, 5.8), layout="constrained")
    axes = style_axes(
        picture.subplots(),
        title=title,
        xlabel="measured: mean product of two rows' residuals, target units squared",
        ylabel="served covariance, target units squared",
    )
    for place, feature in enumerate(dict.fromkeys(figure.feature for figure in drawn)):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        for is_masked in (False, True):
            shown = [
                figure for figure in drawn if figure.feature == feature and (figure.history == MASKED) == is_masked
            ]
            if shown:
                axes.errorbar(
                    [figure.measured for figure in shown],
                    [figure.served for figure in shown],
                    # Error bars must end inside the plot, because a log scale has no 0.
                    xerr=[
                        [min(STANDARD_ERRORS * figure.error, 0.9 * figure.measured) for figure in shown],
                        [STANDARD_ERRORS * figure.error for figure in shown],
                    ],
                    fmt=marker,
                    color=colour,
                    markerfacecolor="white" if is_masked else colour,
                    elinewidth=0.8,
                    label=f"{feature}, sent as unknown" if is_masked else feature,
                )
            for figure in shown:
                axes.annotate(
                    figure.history,
                    (figure.measured, figure.served),
                    xytext=(5, 4),
                    textcoords="offset points",
                    fontsize=7,
                    color=TEXT,
                )
    values = [value for figure in drawn for value in (figure.measured, figure.served)]
    ends = (0.5 * min(values), 2.0 * max(values))
    axes.plot(ends, ends, "--", color=TRUTH, linewidth=1.2, label="served = measured")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(*ends)
    picture.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    picture.savefig(path, format="png", dpi=DPI, facecolor="white")
    return path
