"""The report's plots. Each is drawn once and saved as SVG, whose colours follow the page's theme, and as PNG."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from ghostless.charts import COLOURS, DPI, GRID, MARKERS, TEXT, style_axes
from loadtest.compare.findings import Comparison, Measured
from loadtest.compare.variants import TITLES, HeadName
from loadtest.report.cost import Prices, size_fleet
from loadtest.report.wording import plural

_KINDS = list(TITLES)
# Colours that are replaced by those of the page's theme.
_THEMED = {TEXT: "var(--ink)", GRID: "var(--grid)", "#888888": "var(--muted)"}
# The two bars of a pair: offset, label, opacity.
_SHADES = ((-0.18, "known ids", 0.5), (0.18, "unknown ids", 1.0))

Draw = Callable[[Axes, Comparison, HeadName], None]


def draw_all(comparison: Comparison, prices: Prices) -> Mapping[str, Figure]:
    """All plots, by name."""

    def fleet(axes: Axes, found: Comparison, head: HeadName) -> None:
        _fleet(axes, found, head, prices)

    return {
        "throughput": _by_head(comparison, _throughput, 0.45),
        "latency": _with_legend(_by_head(comparison, _latency, 1.0)),
        "fleet": _by_head(comparison, fleet, 0.45),
        "uncertainty": _by_head(comparison, _uncertainty, 0.5),
    }


def to_svg(figure: Figure) -> str:
    """SVG to be embedded in the page: text remains text, and the background is transparent."""
    sink = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ghostless"}):
        figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None})
    # Remove the prologue and the fixed size, so that the page scales it by its viewBox.
    text = re.sub(r"^.*?<svg", "<svg", sink.getvalue(), flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for colour, themed in _THEMED.items():
        text = text.replace(colour.lower(), themed)
    return text


def save_png(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=DPI, facecolor="white")
    return path


def _by_head(comparison: Comparison, draw: Draw, row_height: float) -> Figure:
    heads = comparison.heads
    variants = max(len(_of(comparison, head)) for head in heads)
    height = 1.3 + row_height * variants if row_height < 1 else 4.2
    figure = Figure(figsize=(5.4 * len(heads), height), layout="constrained")
    for axes, head in zip(np.atleast_1d(figure.subplots(1, len(heads))), heads, strict=True):
        draw(axes, comparison, head)
    return figure


def _with_legend(figure: Figure) -> Figure:
    """Add one legend for all axes, below them."""
    entries: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=4, frameon=False, labelcolor=TEXT
    )
    return figure


def _of(comparison: Comparison, head: HeadName) -> list[Measured]:
    """Results of one head, in the order of TITLES."""
    found = (comparison.of(head, kind) for kind in TITLES)
    return [measured for measured in found if measured is not None]


def _colour(measured: Measured) -> str:
    return COLOURS[_KINDS.index(measured.kind)]


def _bars(axes: Axes, measured: Sequence[Measured], values: Sequence[float], texts: Sequence[str]) -> None:
    places = np.arange(len(measured))
    axes.barh(places, values, 0.66, color=[_colour(each) for each in measured])
    for place, value, text in zip(places.tolist(), values, texts, strict=True):
        _label(axes, text, value, place)
    axes.set_yticks(places, [TITLES[each.kind] for each in measured])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.32 * max(values))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(False, axis="y")


def _label(axes: Axes, text: str, value: float, place: float) -> None:
    """Write a text at the end of a bar."""
    axes.annotate(text, (value, place), (4, 0), textcoords="offset points", va="center", fontsize=9, color=TEXT)


def _throughput(axes: Axes, comparison: Comparison, head: HeadName) -> None:
    measured = _of(comparison, head)
    rates = [each.throughput_per_s for each in measured]
    vbll = comparison.of(head, "vbll")
    texts = [
        f"{rate:,.0f}" if vbll is None or each is vbll else f"{rate:,.0f}  (VBLL: {vbll.throughput_per_s / rate:.1f}x)"
        for each, rate in zip(measured, rates, strict=True)
    ]
    where = f"{comparison.candidates} candidates, {plural(comparison.server_cores, 'core')}"
    style_axes(axes, title=f"{head.upper()}: throughput", xlabel=f"requests/s at saturation, {where}")
    _bars(axes, measured, rates, texts)


def _latency(axes: Axes, comparison: Comparison, head: HeadName) -> None:
    style_axes(axes, title=f"{head.upper()}: p99 latency", xlabel="offered requests/s", ylabel="p99, ms")
    for each in _of(comparison, head):
        points = [point for point in each.points if point.failed_share < 0.5]
        axes.plot(
            [point.rate_per_s for point in points],
            [point.p99_ms for point in points],
            marker=MARKERS[_KINDS.index(each.kind)],
            markersize=4,
            linewidth=1.6,
            color=_colour(each),
            label=TITLES[each.kind],
        )
    objective = f"objective, {comparison.objective_ms:g} ms"
    axes.axhline(comparison.objective_ms, color="#888888", linestyle="--", linewidth=1, label=objective)
    for axis in (axes.xaxis, axes.yaxis):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())


def _fleet(axes: Axes, comparison: Comparison, head: HeadName, prices: Prices) -> None:
    measured = _of(comparison, head)
    fleets = [size_fleet(each, comparison, prices) for each in measured]
    costs = [fleet.per_month if fleet else 0.0 for fleet in fleets]
    texts = [
        f"{fleet.per_month:,.0f}  ({fleet.cores:,} cores)" if fleet else "misses the objective" for fleet in fleets
    ]
    style_axes(axes, title=f"{head.upper()}: fleet for {prices.peak_per_s:,.0f} requests/s", xlabel="$ per month")
    _bars(axes, measured, [max(cost, 1e-9) for cost in costs], texts)
    axes.xaxis.set_major_locator(MaxNLocator(4))  # labels have five digits


def _uncertainty(axes: Axes, comparison: Comparison, head: HeadName) -> None:
    """Epistemic standard deviations, in the target's unit."""
    measured = [each for each in _of(comparison, head) if each.uncertainty is not None]
    places = np.arange(len(measured))
    style_axes(axes, title=f"{head.upper()}: epistemic uncertainty", xlabel="epistemic standard deviation")
    for offset, _, alpha in _SHADES:
        variances = [
            each.uncertainty.epistemic_known if offset < 0 else each.uncertainty.epistemic_unknown
            for each in measured
            if each.uncertainty is not None
        ]
        spread = np.sqrt(variances)
        axes.barh(places + offset, spread, 0.32, color=[_colour(each) for each in measured], alpha=alpha)
        for place, value in zip(places + offset, spread, strict=True):
            _label(axes, f"{value:.3g}", value, place)
    axes.set_yticks(places, [TITLES[each.kind] for each in measured])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * max(1e-6, *axes.get_xlim()))
    axes.grid(False, axis="y")
    shades = [Patch(color="#888888", alpha=alpha, label=label) for _, label, alpha in _SHADES]
    axes.legend(handles=shades, fontsize=8, frameon=False, labelcolor=TEXT, loc="lower right")
