"""`--head auto`: chooses QR, CR or their linear pool by the negative log likelihood of validation rows.

Both heads are first trained without the validation rows. The choice is then trained on all rows, and is the same
network that `--head qr` or `--head cr` would give: choosing costs time, but not quality. For the same reason, the heads
of a pool do not share a backbone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from ghostless.contract.errors import ConfigError
from ghostless.heads.config import HeadName
from learning.array_checks import Floats
from learning.checkpoint import Checkpoint
from learning.config import ModelConfig, TrainConfig
from learning.data.table import Dataset
from learning.evaluation import evaluate
from learning.metrics import bucket_index
from learning.model import Predict
from learning.trained import TrainedModel
from learning.training import Encoded, finished, split, usual_logit_variance

# CR comes first, because the pool is read at its bin edges.
HEADS: tuple[HeadName, HeadName] = ("cr", "qr")
VALIDATION = 0.05
# A pool runs two networks per request, so it must be better by this share of the NLL, and by more than chance.
WORTH = 0.002
_FLOOR = 1e-12


@dataclass(frozen=True)
class Choice:
    """Validation NLL of both heads and of their best pool, QR's weight in the pool, and the choice.

    pool_error: standard error of the difference between the pool's NLL and the better head's, over the same rows.
    """

    qr_nll: float
    cr_nll: float
    pool_nll: float
    qr_weight: float
    pool_error: float = 0.0

    @property
    def heads(self) -> tuple[HeadName, ...]:
        """The networks that the choice needs."""
        return HEADS if self.head == "pool" else (self.head,)

    @property
    def head(self) -> Literal["qr", "cr", "pool"]:
        better = min(self.qr_nll, self.cr_nll)
        if better - self.pool_nll > max(WORTH * abs(better), self.pool_error):
            return "pool"
        return "qr" if self.qr_nll < self.cr_nll else "cr"


def best_weight(qr: Floats, cr: Floats) -> float:
    """QR's best weight, from the probability [n] that each head gave to the outcomes. The pool's NLL is convex in this
    weight."""

    def nll(weight: float) -> float:
        return float(_nll(weight * qr + (1.0 - weight) * cr).mean())

    found = minimize_scalar(nll, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-3})
    return float(found.x)


def compare(qr: Floats, cr: Floats, pool: Floats, weight: float) -> Choice:
    """Compare the heads and the pool by the probability [n] that each gave to the outcomes."""
    qr_nll, cr_nll, pool_nll = (_nll(p) for p in (qr, cr, pool))
    better = qr_nll if qr_nll.mean() < cr_nll.mean() else cr_nll
    error = float((better - pool_nll).std() / np.sqrt(len(better)))
    return Choice(float(qr_nll.mean()), float(cr_nll.mean()), float(pool_nll.mean()), weight, error)


def choose(dataset: Dataset, cr: Checkpoint, qr: Checkpoint) -> Choice:
    """Choose by the validation part of `dataset`, on which neither network was trained."""
    validation = split(dataset, qr.train_config).validation
    if validation is None:
        raise ConfigError("--head auto needs validation rows; set --validation above 0")
    # The pool averages uncalibrated distributions and has its own calibration map.
    raw = [_probability_of_truth(one, validation, one.network.eval().uncalibrated) for one in (qr, cr)]
    weight = best_weight(*raw)
    pool = TrainedModel((cr, qr), (1.0 - weight, weight)).calibrated()
    by_qr, by_cr = (_probability_of_truth(one, validation, one.network.eval().predict) for one in (qr, cr))
    return compare(by_qr, by_cr, _probability_of_truth(cr, validation, pool.predict), weight)


def assemble(choice: Choice, trained: Mapping[HeadName, Checkpoint], dataset: Dataset) -> TrainedModel:
    """The chosen network or pool, from the trained networks."""
    weights = (1.0 - choice.qr_weight, choice.qr_weight) if choice.head == "pool" else (1.0,)
    pool = TrainedModel(tuple(trained[head] for head in choice.heads), weights).calibrated()
    config = pool.first.train_config
    usual = usual_logit_variance(
        pool.predict, Encoded.of(split(dataset, config).train, pool.first.encoding), config.seed
    )
    figures = {f"validation_{name}": value for name, value in vars(choice).items()}
    own = {name: value for name, value in pool.first.metrics.items() if name in ("epochs", "train_rows")}
    return replace(pool, metrics={**own, **usual, **figures})


def trained_before(out: Path, fingerprint: str, model: ModelConfig, train: TrainConfig) -> Checkpoint | None:
    """The finished run in `out`, if it has the same data and options."""
    if not finished(out):
        return None
    kept = Checkpoint.load(out)
    same = (kept.fingerprint, kept.model_config, kept.train_config) == (fingerprint, model, train)
    return kept if same else None


def _probability_of_truth(checkpoint: Checkpoint, dataset: Dataset, predict: Predict) -> Floats:
    """The probability [n] of the bucket that contains each target, out of the metric's ten buckets."""
    judged = evaluate(checkpoint, dataset, predict)
    truth = bucket_index(judged.y, judged.edges)
    return judged.masses[np.arange(len(truth)), truth].astype(np.float64)


def _nll(probability: Floats) -> Floats:
    values: Floats = -np.log(np.maximum(probability, _FLOOR))
    return values
