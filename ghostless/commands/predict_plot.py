"""Plots predictive distributions: the bins as a histogram, with the mean and the quantiles marked."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ghostless.client import Model, Prediction
from ghostless.commands.predict_input import PredictInput
from ghostless.commands.predict_output import ranked
from ghostless.contract.errors import ConfigError, InvalidRequestError
from ghostless.contract.wire import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = 6
COLUMNS = 3
FILL, OUTLINE, MEAN, MARK, ATOM, EMG = "#cfe0f3", "#2b6cb0", "#c0392b", "#444444", "#7d3c98", "#d68910"
# Number of atoms per panel that are labelled with their probability.
WRITTEN_ATOMS = 3


def plot_prediction(path: Path, prediction: Prediction, query: PredictInput, model: Model) -> None:
    """Draw the first candidates in rank order, one panel each on common axes."""
    try:
        # The figure class draws without pyplot's global state or a display.
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError("--plot needs matplotlib: pip install matplotlib") from error
    if prediction.bins is None or prediction.edges is None:
        raise InvalidRequestError(
            f"model '{prediction.model}' returned no bins, so there is nothing to --plot; if --outputs is set, add bins"
        )
    shown = ranked(prediction)[:PANELS]
    columns = min(COLUMNS, len(shown))
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.5 * lines + 0.9), layout="constrained")
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for rank, (row, panel) in enumerate(zip(shown, axes, strict=False), start=1):
        _draw(panel, prediction, row, prediction.bins[row], prediction.edges)
        panel.set_title(f"{rank}. {_label(query, row)}", fontsize=9, loc="left")
    unit = f" ({model.target.unit})" if model.target.unit not in ("", model.target.name) else ""
    for panel in axes[max(len(shown) - columns, 0) : len(shown)]:
        panel.set_xlabel(f"{model.target.name}{unit}", fontsize=9)
        panel.tick_params(labelbottom=True)
    for empty in axes[len(shown) :]:
        empty.set_visible(False)
    # Set after all panels are drawn: they share their axes, so an earlier limit would clip later panels.
    axes[0].set_ylim(bottom=0)
    axes[0].set_xlim(*_span(prediction, shown, prediction.edges))
    figure.supylabel("density", fontsize=10)
    figure.suptitle(f"{prediction.model}, version {prediction.version}: predictive distributions", fontsize=11)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"can't write --plot {path}: {error}") from error


def _span(prediction: Prediction, shown: list[int], edges: FloatArray) -> tuple[float, float]:
    """The range from the first to the last edge, extended to include all quantiles and means."""
    marks = [edges]
    marks += [values[shown].ravel() for values in (prediction.quantiles, prediction.mean) if values is not None]
    every = np.concatenate(marks)
    return float(every.min()), float(every.max())


def _draw(panel: "Axes", prediction: Prediction, row: int, bins: FloatArray, edges: FloatArray) -> None:
    if prediction.atoms is not None and prediction.atom_probabilities is not None:
        # A point mass has no density: it is drawn as a line whose height is its probability, and removed from its bin.
        bins = bins.copy()
        masses = prediction.atom_probabilities[row]
        for value, mass in zip(prediction.atoms, masses, strict=True):
            bins[min(int(np.searchsorted(edges, value, side="right")) - 1, len(bins) - 1)] -= mass
        _draw_atoms(panel, prediction.atoms, masses)
        bins = np.maximum(bins, 0.0)
    density = bins / np.diff(edges)
    panel.stairs(density, edges, fill=True, color=FILL)
    panel.stairs(density, edges, color=OUTLINE, linewidth=1.2, label="bins")
    if prediction.emg_density is not None and prediction.density_grid is not None:
        panel.plot(prediction.density_grid, prediction.emg_density[row], color=EMG, linewidth=1.2, label="EMG density")
    if prediction.mean is not None:
        panel.axvline(float(prediction.mean[row]), color=MEAN, linewidth=1.4, label="mean")
    if prediction.quantiles is not None and prediction.levels is not None:
        levels = ", ".join(f"{level:.0%}" for level in prediction.levels.tolist()[:7])
        panel.plot(
            prediction.quantiles[row],
            np.zeros(len(prediction.levels)),
            linestyle="none",
            marker="^",
            markersize=6,
            color=MARK,
            clip_on=False,
            zorder=3,
            label=f"quantiles {levels}" + (", ..." if len(prediction.levels) > 7 else ""),
        )
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)


def _draw_atoms(panel: "Axes", atoms: FloatArray, masses: FloatArray) -> None:
    """Draw atoms on a separate scale, on which the panel's full height is a probability of 1; label the largest."""
    scale = panel.get_xaxis_transform()
    label = "atoms (full height: 100%)"
    panel.vlines(atoms, 0.0, masses, ATOM, linewidth=3, transform=scale, label=label, zorder=3, clip_on=False)
    largest = np.argsort(-masses, kind="stable")[:WRITTEN_ATOMS]
    text = "\n".join(f"P(={value:.3g}) {mass:.0%}" for value, mass in zip(atoms[largest], masses[largest], strict=True))
    panel.text(0.98, 0.97, text, transform=panel.transAxes, ha="right", va="top", fontsize=8, color=ATOM)


def _label(query: PredictInput, row: int) -> str:
    named = [f"{name} {_short(values[row])}" for name, values in query.candidates.items()]
    return ", ".join(named[:2]) + (", ..." if len(named) > 2 else "")


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
