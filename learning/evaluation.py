"""Evaluates a trained model on held-out rows: the paper's metrics, and the data for plots."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghostless.contract import distribution
from ghostless.heads.bins import grid_bins
from ghostless.heads.predictive import KnotPredictive, Predictive, read_heights
from learning import metrics, plots
from learning.checkpoint import Checkpoint
from learning.data.encoding import Encoding
from learning.data.table import Dataset
from learning.errors import DataError
from learning.linear_pool import LinearPool
from learning.metrics import Metrics
from learning.model import GRID_SEGMENTS, Predict
from learning.schema import Target

Floats = npt.NDArray[np.float32]

# Number of points of a plotted density.
DRAWN_POINTS = 600
# Few enough rows that the temporaries of a CDF, rows x grid points x components, fit into the processor's caches.
EVALUATION_ROWS = 256
# Buckets of the number of training rows of a user, as in the paper's cold-start figure.
HISTORY = ((0, 0), (1, 2), (3, 5), (6, 9), (10, 19), (20, 49))


@dataclass(frozen=True)
class Evaluation:
    """Predictions for n held-out rows, reduced to what the metrics need.

    cdf: [n, k] at knots [k], where a knot that appears twice is an atom; masses: [n, 10] of the paper's buckets [l, u)
    on edges [11]; the rest are [n]. history: number of training rows with the row's value of the first id feature;
    empty without id features.
    """

    y: Floats
    mean: Floats
    aleatoric: Floats
    epistemic: Floats
    logit_variance: Floats
    knots: Floats
    cdf: Floats
    edges: Floats
    masses: Floats
    history: npt.NDArray[np.int64]
    history_name: str
    head: str

    def metrics(self) -> Metrics:
        return metrics.summary(
            masses=self.masses, edges=self.edges, cdf=self.cdf, grid=self.knots, mean=self.mean, y=self.y
        )

    def epistemic_by_history(self) -> list[dict[str, Any]]:
        """Mean epistemic variance per history bucket; buckets without rows are omitted."""
        rows = []
        for low, high in HISTORY:
            inside = (self.history >= low) & (self.history <= high)
            if inside.any():
                label = str(low) if low == high else f"{low}-{high}"
                mean = float(self.epistemic[inside].mean())
                rows.append({"history": label, "rows": int(inside.sum()), "epistemic": mean})
        return rows

    def cold_start_ratio(self) -> float:
        """Mean epistemic variance of unknown ids divided by that of ids with 20 or more training rows."""
        cold, warm = self.history == 0, self.history >= 20
        return float(self.epistemic[cold].mean() / self.epistemic[warm].mean()) if cold.any() and warm.any() else np.nan


def knots_of(predictive: Predictive, target: Target) -> Tensor:
    """Points at which to read a distribution: its own knots, or a fine grid whose ends include the mass beyond them."""
    own = predictive.knots if isinstance(predictive, KnotPredictive | LinearPool) else None
    if own is not None:
        return own
    return torch.from_numpy(grid_bins(target.low, target.high, GRID_SEGMENTS).knots).float()


def censored_cdf(predictive: Predictive, knots: Tensor) -> Tensor:
    """The CDF at knots [k] -> [n, k] of the distribution clipped to [first knot, last knot], as the target is."""
    if isinstance(predictive, KnotPredictive) and knots.equal(predictive.knots.to(knots)):
        return predictive.heights
    return read_heights(predictive, knots)


@torch.no_grad()
def evaluate(checkpoint: Checkpoint, dataset: Dataset, predict: Predict | None = None) -> Evaluation:
    """Predict every row of `dataset`. predict: used instead of the checkpoint's network if the checkpoint is only a
    part of the model."""
    encoding, target = checkpoint.encoding, checkpoint.schema.target
    predict = predict or checkpoint.network.eval().predict
    name = next((feature.name for feature in checkpoint.schema.features if feature.kind == "id"), "")
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    knots: Tensor | None = None

    def keep(**arrays: npt.NDArray[Any]) -> None:
        for key, value in arrays.items():
            parts.setdefault(key, []).append(value)

    for table in dataset.batches(EVALUATION_ROWS):
        encoded = encoding.encode(table)
        predictive = predict({key: torch.from_numpy(value) for key, value in encoded.items()})
        knots = knots_of(predictive, target) if knots is None else knots
        keep(
            # Data other than the run's own may have a different range.
            y=np.clip(table.target, np.float32(target.low), np.float32(target.high)),
            mean=predictive.mean().numpy(),
            aleatoric=predictive.aleatoric().numpy(),
            epistemic=predictive.epistemic().numpy(),
            logit_variance=predictive.logit_variance.numpy(),
            cdf=censored_cdf(predictive, knots).numpy(),
            history=history_counts(encoding, name, encoded[name]) if name else np.zeros(0, np.int64),
        )
    if knots is None:
        raise DataError("there are no rows to evaluate")
    joined = {key: np.concatenate(values) for key, values in parts.items()}
    edges = metrics.uniform_edges(target.low, target.high)
    return Evaluation(
        knots=knots.numpy(),
        edges=edges.astype(np.float32),
        masses=metrics.masses_on(joined["cdf"], knots.numpy(), edges).astype(np.float32),
        history_name=name,
        head=checkpoint.model_config.head,
        **joined,
    )


def history_counts(encoding: Encoding, name: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number of training rows of each encoded id; 0 for the out-of-vocabulary row."""
    counts: npt.NDArray[np.int64] = np.concatenate([[0], encoding.counts[name]])
    return counts[rows]


def drawn_density(cdf: Floats, knots: Floats) -> tuple[Floats, Floats]:
    """Points [p] over the knots' range and the density there [n, p], constant between two knots; without atoms."""
    ends = np.linspace(knots[0], knots[-1], DRAWN_POINTS + 1)
    points = (0.5 * (ends[1:] + ends[:-1])).astype(np.float32)
    place = np.clip(np.searchsorted(knots, points, side="right") - 1, 0, len(knots) - 2)
    widths = np.diff(knots)[place]
    return points, np.maximum(cdf[:, place + 1] - cdf[:, place], 0.0) / widths


def draw(evaluation: Evaluation, checkpoint: Checkpoint, directory: Path) -> list[Path]:
    """Write the standard plots of an evaluation as PNG files."""
    directory.mkdir(parents=True, exist_ok=True)
    head, unit = evaluation.head.upper(), checkpoint.schema.target.unit
    files = {name: directory / f"{name}.png" for name in ("reliability", "pit", "mean", "densities", "history")}
    reliability = metrics.reliability(evaluation.masses, evaluation.y, evaluation.edges)
    plots.reliability_diagram(reliability, files["reliability"], f"{head}: reliability")
    pit = metrics.pit(evaluation.cdf, evaluation.knots, evaluation.y, np.random.default_rng(metrics.PIT_SEED))
    plots.pit_histogram(pit, files["pit"], f"{head}: randomised probability integral transform")
    plots.predicted_against_truth(evaluation.mean, evaluation.y, files["mean"], f"{head}: predicted mean", unit)
    # Four rows from certain to uncertain, to show both sharp and broad predictions.
    order = np.argsort(evaluation.aleatoric + evaluation.epistemic)
    chosen = order[np.linspace(0.02, 0.98, 4).__mul__(len(order) - 1).astype(int)]
    titles = [f"observed {evaluation.y[row]:.2f}, mean {evaluation.mean[row]:.2f}" for row in chosen]
    points, density = drawn_density(evaluation.cdf[chosen], evaluation.knots)
    values, held = distribution.atoms(evaluation.cdf[chosen], evaluation.knots)
    plots.densities(points, {head: density}, None, files["densities"], titles, atoms=(values, held))
    buckets = evaluation.epistemic_by_history()
    if evaluation.epistemic.any() and len(buckets) > 1:
        plots.epistemic_by_history(
            [bucket["history"] for bucket in buckets],
            {head: [bucket["epistemic"] for bucket in buckets]},
            [bucket["rows"] for bucket in buckets],
            files["history"],
            f"{head}: epistemic variance by history of {evaluation.history_name}",
        )
    return [path for path in files.values() if path.exists()]
