"""Which methods predict a ghost value: every kind of network on the bimodal toy.

At x = 0 the target is near 0 or near 1 with equal probability, and never near 0.5.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ghostless.charts import COLOURS, DPI, TRUTH, style_axes
from ghostless.heads.predictive import Predictive
from learning.config import ModelConfig, TrainConfig
from learning.data.table import Table
from learning.data.toy import TOY_SCHEMA, toy, toy_density
from learning.evaluation import evaluate
from learning.metrics import Metrics
from learning.training import Trainer
from research.baselines.network import build_compared

ROWS, HELD_OUT = 16_000, 4000
# There is one input instead of wide embeddings: steep curves need a looser bound, and nothing can overfit.
SHAPE: Mapping[str, Any] = {"spectral_bound": 3.0, "dropout": 0.0, "binning": "uniform"}
TRAIN = TrainConfig(epochs=20, batch_rows=512, learning_rate=5e-3, test=0.0, calibration=0.0)
KINDS: Mapping[str, Mapping[str, Any]] = {
    "Gaussian": {"baseline": "gaussian"},
    "SNGP": {"baseline": "sngp"},
    "VBLL": {"baseline": "vbll"},
    "DER": {"baseline": "evidential"},
    "MDN": {"baseline": "mdn"},
    "QR-VBLL": {"head": "qr"},
    "CR-VBLL": {"head": "cr"},
    "CR-SNGP": {"head": "cr", "baseline": "cr-sngp"},
}
# Where no outcome ever is: more than four standard deviations away from both modes.
GHOST = (0.25, 0.75)


def measure(report: Callable[[str, Predictive, Metrics], None]) -> None:
    """Train each kind, and return its distribution at x = 0 and its figures on held-out rows."""
    rows, held_out = toy(ROWS, seed=0), toy(HELD_OUT, seed=1)
    nothing = Table(TOY_SCHEMA, {"x": np.zeros(1, np.float32)}, np.zeros(1, np.float32))
    for name, options in KINDS.items():
        checkpoint = Trainer(rows, "toy", ModelConfig(**SHAPE, **options), TRAIN, build=build_compared).run()
        encoded = checkpoint.encoding.encode(nothing)
        with torch.no_grad():
            predictive = checkpoint.network.predict({key: torch.from_numpy(value) for key, value in encoded.items()})
        report(name, predictive, evaluate(checkpoint, held_out).metrics())


def ghost_mass(predictive: Predictive) -> float:
    """Probability of a value between the modes."""
    low, high = predictive.cdf(torch.tensor(GHOST))[0].tolist()
    return float(high - low)


def draw(found: Mapping[str, Predictive], path: Path) -> None:
    """Plot the density of each method at x = 0 over the true one."""
    grid = torch.linspace(-0.5, 1.5, 401)
    truth = toy_density(np.zeros(1), grid.numpy())[0]
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True, sharey=True).flatten()
    for axes, (name, predictive) in zip(panels, found.items(), strict=False):
        style_axes(axes, title=f"{name}: {ghost_mass(predictive):.0%} between")
        axes.axvspan(*GHOST, color=COLOURS[1], alpha=0.10, linewidth=0)
        axes.fill_between(grid.numpy(), truth, color="#D9D9D9", linewidth=0)
        axes.plot(grid.numpy(), predictive.density(grid)[0].numpy(), color=COLOURS[0], linewidth=1.7)
        axes.axvline(predictive.mean().item(), color=TRUTH, linestyle=":", linewidth=1.3)
        axes.set_ylim(0, 1.15 * truth.max())
    figure.supxlabel("target at x = 0; grey: truth, dotted: predicted mean, shaded: where nothing happens", fontsize=9)
    figure.savefig(path, format="png", dpi=DPI, facecolor="white")
