"""Charts of a comparison, as PNG files."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ghostless.charts import COLOURS, DPI, TEXT, style_axes
from research.comparison.ablations import AblationResult
from research.comparison.table import Row

FAMILY_LABELS = {"parametric": "parametric", "qr": "QR", "cr": "CR", "ensemble": "5x ensemble", "trees": "trees"}
FAMILY_COLOURS = dict(zip(FAMILY_LABELS, COLOURS, strict=False))
SHOWN = {"nll": "NLL", "crps": "CRPS"}


def draw_table(rows: Sequence[Row], path: Path, title: str) -> None:
    """Plot NLL and CRPS of every method: a dot per seed and a bar at the mean."""
    present = [row for row in rows if row.runs]
    figure = Figure(figsize=(9.6, 0.8 + 0.3 * len(present)), layout="constrained")
    panels = figure.subplots(1, len(SHOWN), sharey=True)
    for axes, (name, label) in zip(panels, SHOWN.items(), strict=True):
        style_axes(axes, title=f"{title}: {label}", xlabel=f"{label} on test rows (less is better)")
        _draw_rows(axes, present, name)
    panels[0].set_yticks(range(len(present)), [row.label for row in present], fontsize=9, color=TEXT)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        unique.values(), unique.keys(), loc="outside lower center", ncols=len(unique), frameon=False, fontsize=9
    )
    figure.savefig(path, format="png", dpi=DPI, facecolor="white")


def _draw_rows(axes: Axes, rows: Sequence[Row], figure: str) -> None:
    for place, row in enumerate(rows):
        colour = FAMILY_COLOURS[row.method.family]
        values = [run[figure] for run in row.runs]
        label = FAMILY_LABELS[row.method.family]
        axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.45, markersize=4.5, label=label)
        axes.plot([row.mean(figure)], [place], "|", color=colour, markersize=15, markeredgewidth=2.5)
        # Highlights the paper's two methods.
        if row.method.name.endswith("-vbll"):
            axes.axhspan(place - 0.5, place + 0.5, color=colour, alpha=0.10, linewidth=0)


def draw_curves(results: Sequence[AblationResult], path: Path, title: str) -> None:
    """Plot NLL by epoch, one panel per head: dashed for training rows, solid for test rows."""
    drawn = [result for result in results if result.curve]
    heads = list(dict.fromkeys(result.label.split()[0] for result in drawn))
    figure = Figure(figsize=(1.0 + 4.6 * len(heads), 4.0), layout="constrained")
    panels = figure.subplots(1, len(heads), squeeze=False)[0]
    for axes, head in zip(panels, heads, strict=True):
        style_axes(axes, title=f"{title}: {head}", xlabel="epoch", ylabel="NLL")
        for colour, result in zip(cycle(COLOURS), (r for r in drawn if r.label.startswith(f"{head} ")), strict=False):
            epochs = [point["epoch"] for point in result.curve]
            label = result.label.removeprefix(f"{head} ")
            axes.plot(epochs, [point["test"] for point in result.curve], "o-", color=colour, label=label, markersize=4)
            axes.plot(epochs, [point["train"] for point in result.curve], "--", color=colour, linewidth=1.1)
            axes.set_xticks(epochs)
        axes.legend(fontsize=8, framealpha=0.9, title="solid: test rows, dashed: training rows", title_fontsize=8)
    figure.savefig(path, format="png", dpi=DPI, facecolor="white")
