"""Far from the data, on the bimodal toy: s^2 must grow with the square of the distance, and the entropy must rise.

Measured on the paper's network, for which the paper claims it. The cross layer of the default network adds products of
inputs to phi, so its s^2 grows faster. The distance is that of z, the encoded number that every network receives,
because z itself grows like the logarithm of x far out (learning.data.encoding).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.learning.runs import PAPER_MODEL, Runs
from ghostless.heads.closed_forms.quantile_mixture import QuantileMixture
from ghostless.heads.predictive import Predictive
from ghostless.heads.quantile import WarpedMixture
from learning import plots
from learning.checkpoint import Checkpoint
from learning.config import TrainConfig
from learning.data.encoding import z_key
from learning.data.table import Table
from loadtest.figures import Figures

# There is one feature instead of wide embeddings: steep quantile curves need a looser bound, and nothing can overfit.
MODEL = replace(PAPER_MODEL, spectral_bound=3.0, dropout=0.0)
TRAIN = TrainConfig(epochs=20, batch_rows=512, learning_rate=5e-3)

TRAINING_RANGE = (-2.0, 2.0)
# In units of z; the training data has a standard deviation of about 1.
FAR = np.geomspace(100.0, 5000.0, 20)
RISE = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
GRID_POINTS = 2001


def predict(checkpoint: Checkpoint, x: np.ndarray) -> Predictive:
    """The model's distributions at inputs x [n]."""
    table = Table(checkpoint.schema, {"x": x.astype(np.float32)}, np.zeros(len(x), np.float32))
    return _predict(checkpoint, checkpoint.encoding.encode(table))


def predict_far(checkpoint: Checkpoint, z: np.ndarray) -> Predictive:
    """The model's distributions for network inputs z [n], beyond all data."""
    table = Table(checkpoint.schema, {"x": np.sign(z).astype(np.float32) * 1e6}, np.zeros(len(z), np.float32))
    return _predict(checkpoint, {**checkpoint.encoding.encode(table), z_key("x"): z.astype(np.float32)})


@torch.no_grad()
def _predict(checkpoint: Checkpoint, encoded: dict[str, np.ndarray]) -> Predictive:
    return checkpoint.model.predict({name: torch.from_numpy(values) for name, values in encoded.items()})


def log_log_slope(distance: np.ndarray, variance: Tensor) -> float:
    return float(np.polyfit(np.log(distance), np.log(variance.numpy()), 1)[0])


def differential_entropy(mixture: QuantileMixture) -> Tensor:
    """-integral of f log f [n], on a grid that spans each row's whole distribution."""
    reach = 10.0 * mixture.sd.amax(-1, keepdim=True)
    low = mixture.centres.amin(-1, keepdim=True) - reach
    high = mixture.centres.amax(-1, keepdim=True) + reach
    points = low + (high - low) * torch.linspace(0.0, 1.0, GRID_POINTS)
    density = mixture.density(points)
    return -torch.trapezoid(torch.special.xlogy(density, density), points, dim=-1)


def measure_toy(runs: Runs, figures: Figures, pictures: Path | None) -> None:
    checkpoint = runs.get("toy", MODEL, TRAIN).checkpoint
    slopes = [log_log_slope(FAR, predict_far(checkpoint, side * FAR).logit_variance) for side in (1.0, -1.0)]
    figures.add("out of distribution, minimum log-log slope of s² against distance", min(slopes), ">= 1.9")
    figures.add("out of distribution, maximum log-log slope of s² against distance", max(slopes), "<= 2.1")
    _measure_entropy(figures, checkpoint)
    _measure_ghost(figures, checkpoint)
    if pictures is not None:
        _draw(checkpoint, pictures / "out_of_distribution.png")


def _entropy(checkpoint: Checkpoint, x: np.ndarray) -> Tensor:
    predictive = predict(checkpoint, x)
    if not isinstance(predictive, WarpedMixture):
        raise TypeError(f"the toy needs the QR head, not {type(predictive).__name__}")
    return differential_entropy(predictive.mixture)


def _measure_entropy(figures: Figures, checkpoint: Checkpoint) -> None:
    inside = _entropy(checkpoint, np.linspace(*TRAINING_RANGE, 41))
    rises = []
    for side in (1.0, -1.0):
        outside = _entropy(checkpoint, side * RISE)
        rises.append((outside[1:] - outside[:-1]).min().item())
        figures.add(
            f"out of distribution, entropy at x = {side * 16:g} minus the maximum inside, nats",
            (outside[RISE == 16.0].max() - inside.max()).item(),
            "> 0",
        )
    figures.add("out of distribution, minimum rise of entropy per doubled distance, nats", min(rises), "> 0")


def _measure_ghost(figures: Figures, checkpoint: Checkpoint) -> None:
    """No outcome lies between the modes at 0 and 1, where a model of the mean would put its peak."""
    density = predict(checkpoint, np.linspace(-1.5, 1.5, 31)).density(torch.linspace(-0.5, 1.5, 401))
    ghost = density[:, 200] / density.max(-1).values
    figures.add(
        "toy, density at the ghost value 0.5 / density at the peak, maximum over x", ghost.max().item(), "<= 0.1"
    )


def _draw(checkpoint: Checkpoint, path: Path) -> None:
    x, y = np.linspace(-10.0, 10.0, 401), np.linspace(-2.0, 3.0, 401)
    predictive = predict(checkpoint, x)
    density = predictive.density(torch.from_numpy(y).float()).T
    plots.out_of_distribution(
        x,
        y,
        density.numpy(),
        _entropy(checkpoint, x).numpy(),
        predictive.logit_variance.numpy(),
        TRAINING_RANGE,
        path,
        "QR-VBLL on the bimodal toy: two clear modes inside the data, uncertain outside",
    )
