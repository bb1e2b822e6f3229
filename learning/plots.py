"""Plots of a model's quality: each function checks its arrays, writes one PNG and returns the figure.

Figures are built without pyplot, so they need no display and do not change matplotlib's global state.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import ArrayLike

from ghostless.charts import COLOURS, DATA, DPI, MARKERS, TEXT, TRUTH, style_axes
from learning import metrics
from learning.array_checks import Floats, boundaries, finite
from learning.metrics import Reliability

Corner = Literal["upper left", "upper right", "upper center"]


def reliability_diagram(reliability: Reliability, path: str | Path, title: str = "Reliability") -> Figure:
    """Accuracy of the most probable bucket by its confidence, over the number of rows per bin."""
    if not np.any(reliability.counts > 0):
        raise ValueError("the reliability diagram has no rows to draw: every confidence bin is empty")
    bins = len(reliability.counts)
    width, used = 1.0 / bins, reliability.counts > 0
    centres = (np.arange(bins) + 0.5) * width
    figure = Figure(figsize=(5.2, 6.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    style_axes(upper, title=title, ylabel="accuracy: share of rows in that bucket")
    upper.bar(centres[used], reliability.accuracy[used], 0.92 * width, color=COLOURS[0], label="accuracy")
    upper.plot([0, 1], [0, 1], "--", color=TRUTH, linewidth=1.2, label="perfect calibration")
    upper.plot(
        reliability.confidence[used],
        reliability.accuracy[used],
        "o",
        color=COLOURS[1],
        markersize=5,
        markeredgecolor="white",
        label="at mean confidence",
    )
    upper.set_ylim(0, 1)
    ece = reliability.expected_calibration_error
    _legend(upper, loc="upper left", title=f"ECE {ece:.4f}")
    style_axes(lower, xlabel="confidence: mass of the most probable bucket", ylabel="rows")
    lower.bar(centres, reliability.counts, 0.92 * width, color=DATA)
    _counts_axis(lower)
    lower.set_xlim(0, 1)
    return _save(figure, path)


def densities(
    grid: ArrayLike,
    predicted: ArrayLike | Mapping[str, ArrayLike],
    truth: ArrayLike | None,
    path: str | Path,
    titles: Sequence[str],
    *,
    histograms: ArrayLike | None = None,
    histogram_edges: ArrayLike | None = None,
    atoms: tuple[ArrayLike, ArrayLike] | None = None,
    xlabel: str = "target",
) -> Figure:
    """Small multiples of k densities on grid [g]: predicted [k, g], or one such array per head, and truth [k, g].

    histograms [k, b] over histogram_edges [b + 1] are empirical densities, drawn in the background. atoms: values [a]
    and their masses [k, a], drawn as spikes on a separate scale.
    """
    points, k = boundaries("grid", grid), len(titles)
    heads = _heads(predicted if isinstance(predicted, Mapping) else {"predicted": predicted})
    curves = {name: _shaped(f"predicted '{name}'", values, (k, len(points))) for name, values in heads.items()}
    known = None if truth is None else _shaped("truth", truth, (k, len(points)))
    if (histograms is None) != (histogram_edges is None):
        raise ValueError("histograms and histogram_edges must be given together")
    edges = None if histogram_edges is None else boundaries("histogram_edges", histogram_edges)
    bars = None if histograms is None or edges is None else _shaped("histograms", histograms, (k, len(edges) - 1))
    spikes = None if atoms is None or not np.size(atoms[0]) else (finite("atoms", atoms[0], 1), atoms[1])
    columns = 2 if k == 4 else min(k, 3)
    rows = -(-k // columns)
    figure = Figure(figsize=(1.0 + 3.2 * columns, 0.7 + 2.5 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False).flatten()
    for index, (axes, panel_title) in enumerate(zip(panels, titles, strict=False)):
        style_axes(axes, title=panel_title, ylabel="density" if index % columns == 0 else "")
        if bars is not None and edges is not None:
            axes.stairs(bars[index], edges, fill=True, color=DATA, label="observed")
        if known is not None:
            axes.plot(points, known[index], color=TRUTH, linewidth=1.4, linestyle=(0, (4, 2)), label="truth")
        for colour, (name, values) in zip(COLOURS, curves.items(), strict=False):
            axes.plot(points, values[index], color=colour, linewidth=1.8, label=name)
        axes.set_ylim(bottom=0)
        if spikes is not None:
            _spikes(axes, spikes[0], _shaped("atoms' masses", spikes[1], (k, len(spikes[0])))[index])
        axes.set_xlim(points[0], points[-1])
        if index + columns >= k:
            axes.set_xlabel(xlabel, fontsize=10, color=TEXT)
            axes.tick_params(labelbottom=True)
    for axes in panels[k:]:
        axes.remove()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
    return _save(figure, path)


def epistemic_by_history(
    bucket_labels: Sequence[str],
    values: Mapping[str, ArrayLike],
    counts: ArrayLike,
    path: str | Path,
    title: str = "Epistemic uncertainty by user history",
    unit: str = "target units squared",
) -> Figure:
    """Mean epistemic variance [b] of each head per bucket of user history, over the number of rows [b].

    A bucket without rows is omitted.
    """
    b = len(bucket_labels)
    rows = _shaped("counts", counts, (b,))
    seen = np.flatnonzero(rows > 0)
    if not seen.size:
        raise ValueError("counts must be positive in at least one bucket, got none")
    curves = {name: np.asarray(series, dtype=np.float64) for name, series in _heads(values).items()}
    for name, series in curves.items():
        if series.shape != (b,) or not np.all(series[seen] > 0):
            raise ValueError(f"values of '{name}' must be {b} positive numbers where counts > 0, got {series}")
    figure = Figure(figsize=(6.4, 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    style_axes(upper, title=title, ylabel=f"mean epistemic variance\n({unit}, log scale)")
    for colour, marker, (name, series) in zip(COLOURS, MARKERS, curves.items(), strict=False):
        label = f"{name}: first bucket {series[seen[0]] / series[seen[-1]]:.1f}× the last"
        upper.plot(seen, series[seen], marker=marker, color=colour, linewidth=1.8, markersize=6, label=label)
    upper.set_yscale("log")
    _legend(upper, loc="upper right")
    style_axes(lower, xlabel="interactions of the user in training", ylabel="rows")
    drawn = lower.bar(np.arange(b), rows, 0.7, color=DATA)
    lower.bar_label(drawn, [f"{int(count):,}" for count in rows], fontsize=8, color=TEXT, padding=2)
    lower.margins(y=0.25)
    _counts_axis(lower)
    lower.set_xticks(np.arange(b), bucket_labels)
    return _save(figure, path)


def out_of_distribution(
    x: ArrayLike,
    y_grid: ArrayLike,
    density: ArrayLike,
    entropy: ArrayLike,
    s2: ArrayLike,
    training_range: tuple[float, float],
    path: str | Path,
    title: str = "Far from the data",
) -> Figure:
    """Predictive density [g, n], its entropy [n] and s^2 [n] along the input x [n]; the training range is marked."""
    inputs, targets = boundaries("x", x), boundaries("y_grid", y_grid)
    heat = _shaped("density", density, (len(targets), len(inputs)))
    uncertainty, variance = _shaped("entropy", entropy, inputs.shape), _shaped("s2", s2, inputs.shape)
    low, high = training_range
    if not low < high:
        raise ValueError(f"training_range must be (low, high) with low < high, got {training_range}")
    if heat.min() < 0 or variance.min() <= 0:
        raise ValueError(f"density must be >= 0 and s2 > 0, got minima {heat.min():.3g} and {variance.min():.3g}")
    figure = Figure(figsize=(7.0, 7.4), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(2.4, 1, 1))
    style_axes(top, title=title, ylabel="target y").grid(False)
    # Each x has its own peak; the square root keeps flat columns visible next to sharp ones.
    mesh = top.pcolormesh(inputs, targets, np.sqrt(heat), cmap="cividis", shading="nearest", rasterized=True)
    _colour_bar(figure, mesh, top, "√ density")
    for edge in (low, high):
        top.axvline(edge, color="white", linestyle="--", linewidth=1.2)
    style_axes(middle, ylabel="entropy (nats)").plot(inputs, uncertainty, color=COLOURS[1], linewidth=1.8)
    style_axes(bottom, xlabel="input x", ylabel="s² (log scale)")
    bottom.plot(inputs, variance, color=COLOURS[0], linewidth=1.8, label="s²")
    distance = np.abs(inputs - (low + high) / 2)
    outside = np.where((inputs < low) | (inputs > high), distance**2, np.nan)
    farthest = int(np.argmax(distance))
    reference = outside * variance[farthest] / distance[farthest] ** 2
    bottom.plot(inputs, reference, "--", color=TRUTH, linewidth=1.1, label="proportional to distance²")
    bottom.set_yscale("log")
    for axes in (middle, bottom):
        axes.axvspan(low, high, color=COLOURS[5], alpha=0.18, linewidth=0, label="training data")
    handles, labels = bottom.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    bottom.set_xlim(inputs[0], inputs[-1])
    return _save(figure, path)


def pit_histogram(
    values: ArrayLike, path: str | Path, title: str = "Probability integral transform", bins: int = 20
) -> Figure:
    """Histogram of PIT values [n], with the band that contains 95% of a calibrated model's bars."""
    density = metrics.pit_histogram(values, bins)
    rows = finite("PIT values", values, 1).size
    band = 1.96 * float(np.sqrt((bins - 1) / rows))
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = style_axes(figure.subplots(), title=title, xlabel="PIT value, between F(y-) and F(y)", ylabel="density")
    axes.bar((np.arange(bins) + 0.5) / bins, density, 0.92 / bins, color=COLOURS[0], label=f"{rows:,} rows")
    axes.axhspan(max(0.0, 1 - band), 1 + band, color=COLOURS[4], alpha=0.35, linewidth=0, label="95% if calibrated")
    axes.axhline(1.0, color=TRUTH, linestyle="--", linewidth=1.2, label="uniform")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.35 * max(float(density.max()), 1 + band))
    _legend(axes, loc="upper center", ncols=3)
    return _save(figure, path)


def predicted_against_truth(
    predicted: ArrayLike,
    truth: ArrayLike,
    path: str | Path,
    title: str = "Predicted mean",
    unit: str = "target",
) -> Figure:
    """Density of rows in (predicted mean [n], truth [n]), and the mean truth in ten groups of equal size."""
    mean = finite("predicted", predicted, 1)
    observed = _shaped("truth", truth, mean.shape)
    groups = np.array_split(np.argsort(mean, kind="stable"), min(10, len(mean)))
    low, high = float(min(mean.min(), observed.min())), float(max(mean.max(), observed.max()))
    figure = Figure(figsize=(6.0, 5.0), layout="constrained")
    axes = style_axes(figure.subplots(), title=title, xlabel=f"predicted mean ({unit})", ylabel=f"observed ({unit})")
    cells = axes.hexbin(mean, observed, gridsize=45, bins="log", mincnt=1, cmap="Blues", linewidths=0)
    _colour_bar(figure, cells, axes, "rows (log scale)")
    axes.plot([low, high], [low, high], "--", color=TRUTH, linewidth=1.2, label="predicted = observed")
    axes.plot(
        [mean[group].mean() for group in groups],
        [observed[group].mean() for group in groups],
        "o-",
        color=COLOURS[1],
        markeredgecolor="white",
        linewidth=1.6,
        label="mean observed per tenth of the rows",
    )
    if mean.min() < mean.max():
        axes.set_xlim(mean.min(), mean.max())
    _legend(axes, loc="upper left")
    return _save(figure, path)


def _spikes(axes: Axes, values: Floats, masses: Floats) -> None:
    """Draw point masses as spikes, with their own scale from 0 to 1 on the right, because a mass is not a density."""
    scale = axes.twinx()
    scale.set_ylim(0.0, 1.0)
    scale.set_ylabel("point mass", fontsize=8, color=TEXT)
    scale.tick_params(labelsize=8, colors=TEXT)
    for spine in scale.spines.values():
        spine.set_visible(False)
    held = masses > 0
    # Without clip_on=False, a spike at the edge of the plot would be half hidden.
    scale.vlines(values[held], 0.0, masses[held], color=COLOURS[1], linewidth=2.2, clip_on=False)
    scale.plot(values[held], masses[held], "o", color=COLOURS[1], markersize=4, clip_on=False)


def _heads(series: Mapping[str, ArrayLike]) -> Mapping[str, ArrayLike]:
    if not 1 <= len(series) <= len(COLOURS):
        raise ValueError(f"one to {len(COLOURS)} heads fit in one figure, got {len(series)}: {list(series)}")
    return series


def _shaped(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Floats:
    array = finite(name, value, len(shape))
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def _counts_axis(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _legend(axes: Axes, loc: Corner, title: str | None = None, ncols: int = 1) -> None:
    legend = axes.legend(loc=loc, title=title, ncols=ncols, fontsize=9, title_fontsize=10, framealpha=0.9)
    legend.get_frame().set_edgecolor("none")


def _colour_bar(figure: Figure, drawn: ScalarMappable, axes: Axes, label: str) -> None:
    bar = figure.colorbar(drawn, ax=axes, pad=0.01)
    bar.set_label(label, fontsize=9, color=TEXT)
    bar.ax.tick_params(which="both", labelsize=9, colors=TEXT)
    bar.outline.set_visible(False)


def _save(figure: Figure, path: str | Path) -> Figure:
    figure.savefig(path, format="png", dpi=DPI, facecolor="white")
    return figure
