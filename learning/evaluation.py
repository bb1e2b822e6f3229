"""Judge a trained model on held-out rows: the paper's metrics, and what the plots need."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghostless.heads.predictive import Predictive
from learning import conformal, metrics, plots
from learning.checkpoint import Checkpoint
from learning.data.encoding import Encoding
from learning.data.table import Dataset
from learning.metrics import Metrics
from learning.model import Predict

Floats = npt.NDArray[np.float32]

GRID_POINTS = 301
# So few that a CDF's temporaries, rows x grid points x components, stay near the processor.
EVALUATION_ROWS = 256
# How often training saw the user: the buckets of the paper's cold-start figure.
HISTORY = ((0, 0), (1, 2), (3, 5), (6, 9), (10, 19), (20, 49))


@dataclass(frozen=True)
class Evaluation:
    """Predictions for n held-out rows, reduced to what is judged.

    cdf: [n, g] on grid [g]; masses: [n, 10] on edges [11]; the rest [n]. history: how often training saw the first
    id feature's value in each row, or empty without one.
    """

    y: Floats
    mean: Floats
    aleatoric: Floats
    epistemic: Floats
    logit_variance: Floats
    grid: Floats
    cdf: Floats
    edges: Floats
    masses: Floats
    history: npt.NDArray[np.int64]
    history_name: str
    head: str

    def metrics(self) -> Metrics:
        return metrics.summary(
            masses=self.masses, edges=self.edges, cdf=self.cdf, grid=self.grid, mean=self.mean, y=self.y
        )

    def epistemic_by_history(self) -> list[dict[str, Any]]:
        """Mean epistemic variance per bucket of history; buckets without rows are left out."""
        rows = []
        for low, high in HISTORY:
            inside = (self.history >= low) & (self.history <= high)
            if inside.any():
                label = str(low) if low == high else f"{low}-{high}"
                mean = float(self.epistemic[inside].mean())
                rows.append({"history": label, "rows": int(inside.sum()), "epistemic": mean})
        return rows

    def cold_start_ratio(self) -> float:
        """Mean epistemic variance of unknown ids over that of ids seen 20 times or more."""
        cold, warm = self.history == 0, self.history >= 20
        return float(self.epistemic[cold].mean() / self.epistemic[warm].mean()) if cold.any() and warm.any() else np.nan


def censored_cdf(predictive: Predictive, knots: Tensor) -> Tensor:
    """The CDF at knots [k] -> [n, k] of the distribution clipped, as the target is, to [first knot, last knot]."""
    inner = predictive.cdf(knots[1:-1])
    return torch.cat([torch.zeros_like(inner[:, :1]), inner, torch.ones_like(inner[:, :1])], -1)


@torch.no_grad()
def evaluate(checkpoint: Checkpoint, dataset: Dataset, predict: Predict | None = None) -> Evaluation:
    """Predict every row of `dataset`; by `predict`, where the checkpoint is only a part of what predicts."""
    encoding, target = checkpoint.encoding, checkpoint.schema.target
    predict = predict or checkpoint.network.eval().predict
    grid = torch.linspace(target.low, target.high, GRID_POINTS, dtype=torch.float64).float()
    step = (GRID_POINTS - 1) // 10
    name = next((feature.name for feature in checkpoint.schema.features if feature.kind == "id"), "")
    parts: dict[str, list[npt.NDArray[Any]]] = {}

    def keep(**arrays: npt.NDArray[Any]) -> None:
        for key, value in arrays.items():
            parts.setdefault(key, []).append(value)

    for table in dataset.batches(EVALUATION_ROWS):
        encoded = encoding.encode(table)
        predictive = predict({key: torch.from_numpy(value) for key, value in encoded.items()})
        keep(
            y=table.target,
            mean=predictive.mean().numpy(),
            aleatoric=predictive.aleatoric().numpy(),
            epistemic=predictive.epistemic().numpy(),
            logit_variance=predictive.logit_variance.numpy(),
            cdf=censored_cdf(predictive, grid).numpy(),
            history=history_counts(encoding, name, encoded[name]) if name else np.zeros(0, np.int64),
        )
    joined = {key: np.concatenate(values) for key, values in parts.items()}
    return Evaluation(
        grid=grid.numpy(),
        edges=grid[::step].numpy(),
        masses=np.diff(joined["cdf"][:, ::step], axis=1),
        history_name=name,
        head=checkpoint.model_config.head,
        **joined,
    )


def conformal_figures(checkpoint: Checkpoint, judged: Evaluation, predict: Predict | None = None) -> dict[str, float]:
    """How the calibrated intervals do on the judged rows; nothing where the run kept no rows to calibrate on."""
    if checkpoint.calibration is None:
        return {}
    kept = evaluate(checkpoint, checkpoint.calibration, predict)
    levels = conformal.fit(kept.cdf, kept.grid, kept.y)
    return conformal.figures(levels, judged.cdf, judged.grid, judged.y)


def history_counts(encoding: Encoding, name: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How often training saw each encoded id: 0 for the out-of-vocabulary row."""
    counts: npt.NDArray[np.int64] = np.concatenate([[0], encoding.counts[name]])
    return counts[rows]


def draw(evaluation: Evaluation, checkpoint: Checkpoint, directory: Path) -> list[Path]:
    """The standard pictures of an evaluation, as PNG files."""
    directory.mkdir(parents=True, exist_ok=True)
    head, unit = evaluation.head.upper(), checkpoint.schema.target.unit
    files = {name: directory / f"{name}.png" for name in ("reliability", "pit", "mean", "densities", "history")}
    reliability = metrics.reliability(evaluation.masses, evaluation.y, evaluation.edges)
    plots.reliability_diagram(reliability, files["reliability"], f"{head}: reliability")
    pit = metrics.pit(evaluation.cdf, evaluation.grid, evaluation.y, np.random.default_rng(0))
    plots.pit_histogram(pit, files["pit"], f"{head}: probability integral transform")
    plots.predicted_against_truth(evaluation.mean, evaluation.y, files["mean"], f"{head}: predicted mean", unit)
    # Four rows from certain to uncertain, so that both sharp and broad predictions are seen.
    order = np.argsort(evaluation.aleatoric + evaluation.epistemic)
    chosen = order[np.linspace(0.02, 0.98, 4).__mul__(len(order) - 1).astype(int)]
    density = np.diff(evaluation.cdf[chosen], axis=1) / np.diff(evaluation.grid)
    centres = 0.5 * (evaluation.grid[1:] + evaluation.grid[:-1])
    titles = [f"observed {evaluation.y[row]:.2f}, mean {evaluation.mean[row]:.2f}" for row in chosen]
    plots.densities(centres, {head: density}, None, files["densities"], titles)
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
