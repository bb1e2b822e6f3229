"""A plot of the drift scenario, drawn from the values that Prometheus scraped."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.observability.drift import DriftScenario
from benchmarks.observability.prometheus import SCRAPE_S
from loadtest.server_process import BenchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WINDOW = "3s"
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:purple")
_SHADES = ("white", "#fff3d6", "#fde0dc", "white")


@dataclass(frozen=True)
class _Panel:
    """Queries with their labels, which may contain labels of the series. `line` marks the threshold of an alert."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    scale: float = 1.0
    line: float | None = None


def _ratio(counter: str, over: str, by: str = "") -> str:
    grouping = f" by ({by})" if by else ""
    matching = " / ignoring (feature) group_left ()" if by == "feature" else " /"
    other = "" if by == "feature" else grouping
    return f"sum{grouping} (rate({counter}[{_WINDOW}])){matching} sum{other} (rate({over}[{_WINDOW}]))"


_PANELS = (
    _Panel(
        "Out-of-distribution rate: logit variance over the training set's 99.9th percentile",
        "% of rows",
        [(_ratio("ghostless_out_of_distribution_rows_total", "ghostless_uncertainty_rows_total"), "")],
        100.0,
        line=1.0,
    ),
    _Panel(
        "Epistemic share of the predictive variance, mean",
        "%",
        [(_ratio("ghostless_epistemic_share_sum", "ghostless_epistemic_share_count"), "")],
        100.0,
    ),
    _Panel(
        "Ids that are not in the training data",
        "% of rows",
        [(_ratio("ghostless_unknown_ids_total", "ghostless_uncertainty_rows_total", "feature"), "{feature}")],
        100.0,
    ),
    _Panel(
        "Numbers outside their training range",
        "% of rows",
        [(_ratio("ghostless_out_of_range_rows_total", "ghostless_uncertainty_rows_total", "feature"), "{feature}")],
        100.0,
    ),
    _Panel(
        "Coverage of the central intervals, from outcomes",
        "% of outcomes",
        [(_ratio("ghostless_outcome_covered_rows_total", "ghostless_outcome_interval_rows_total", "level"), "{level}")],
        100.0,
    ),
    _Panel(
        "Request time",
        "ms",
        [
            (f"histogram_quantile({q}, sum by (le) (rate(ghostless_request_seconds_bucket[{_WINDOW}])))", name)
            for q, name in ((0.99, "p99"), (0.5, "p50"))
        ],
        1000.0,
    ),
)


def draw(drift: DriftScenario, path: Path) -> None:
    """Write the plot to `path`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchError("the plot needs matplotlib; run `make install`") from error
    figure = Figure(figsize=(9, 2.1 * len(_PANELS)), layout="constrained")
    axes = figure.subplots(len(_PANELS), sharex=True)
    start, end = drift.phases[0].start, drift.phases[-1].end
    for panel, ax in zip(_PANELS, axes, strict=True):
        for phase, shade in zip(drift.phases, _SHADES, strict=True):
            ax.axvspan(phase.start - start, phase.end - start, color=shade, lw=0, zorder=0)
        _draw_panel(ax, panel, drift, start, end)
    for phase in drift.phases:
        middle = (phase.start + phase.end) / 2 - start
        name = phase.kind.name.replace("new users, ", "new users,\n")
        axes[0].annotate(
            name,
            (middle, 1.16),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=9,
            color="dimgray",
        )
    axes[-1].set_xlabel("seconds")
    axes[-1].set_xlim(0, end - start)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _draw_panel(ax: "Axes", panel: _Panel, drift: DriftScenario, start: float, end: float) -> None:
    labels: list[str] = []
    for query, name in panel.queries:
        for series in drift.prometheus.query_range(query, start, end, SCRAPE_S):
            label = name.format(**series.labels)
            times = [t - start for t in series.times]
            colour = _COLOURS[len(labels) % len(_COLOURS)]
            ax.plot(times, [panel.scale * v for v in series.values], lw=1.4, color=colour, label=label)
            labels.append(label)
    if not labels:
        raise BenchError(f"Prometheus has no data for the panel {panel.title!r}")
    if panel.line is not None:
        ax.axhline(panel.line, color="tab:red", lw=0.8, ls="--")
        ax.annotate(
            "alert", (0.995, panel.line), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
        )
    ax.set_title(panel.title, loc="left", fontsize=10)
    ax.set_ylabel(panel.unit, fontsize=9)
    ax.set_ylim(bottom=0)
    ax.tick_params(labelsize=8)
    ax.grid(alpha=0.3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if any(labels):
        ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
