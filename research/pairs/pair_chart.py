"""The picture of a pair test: predicted variance against what pairs measure, on log scales."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ghostless.charts import COLOURS, DPI, MARKERS, TEXT, TRUTH, style_axes
from research.pairs.pair_test import STANDARD_ERRORS, PairFigure


def draw_pairs(figures: Sequence[PairFigure], path: Path, title: str) -> Path | None:
    """One point per id feature and bucket: filled as served, open by effects; on the diagonal both would be right.

    Figures that log scales can't show (nothing measured, or nothing served) are left out; None where none is left.
    """
    drawn = [figure for figure in figures if figure.history != "all" and min(figure.measured, figure.effects) > 0]
    if not drawn:
        return None
    picture = Figure(figsize=(6.4, 5.8), layout="constrained")
    axes = style_axes(
        picture.subplots(),
        title=title,
        xlabel="measured E[r_i r_j], target units squared",
        ylabel="variance, target units squared",
    )
    for place, feature in enumerate(dict.fromkeys(figure.feature for figure in drawn)):
        own = [figure for figure in drawn if figure.feature == feature]
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        for kind, fill in (("served", colour), ("effects", "white")):
            shown = [figure for figure in own if getattr(figure, kind) > 0]
            if not shown:
                continue
            axes.errorbar(
                [figure.measured for figure in shown],
                [getattr(figure, kind) for figure in shown],
                # Bars end inside the picture: a log scale has no 0.
                xerr=[
                    [min(STANDARD_ERRORS * figure.error, 0.9 * figure.measured) for figure in shown],
                    [STANDARD_ERRORS * figure.error for figure in shown],
                ],
                fmt=marker,
                color=colour,
                markerfacecolor=fill,
                elinewidth=0.8,
                label=f"{feature}, {kind}",
            )
        # What is served lies straight below or above, so one label is enough for both.
        for figure in own:
            axes.annotate(
                figure.history,
                (figure.measured, figure.effects),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize=7,
                color=TEXT,
            )
    values = [value for figure in drawn for value in (figure.measured, figure.served, figure.effects) if value > 0]
    ends = (0.5 * min(values), 2.0 * max(values))
    axes.plot(ends, ends, "--", color=TRUTH, linewidth=1.2, label="as measured")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(*ends)
    picture.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    picture.savefig(path, format="png", dpi=DPI, facecolor="white")
    return path
