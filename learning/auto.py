"""`--head auto`: QR, CR or their linear pool, by the negative log likelihood of validation rows.

Both networks are trained as they would be alone, backbone and all. One shared backbone would halve the pool's cost, but
each head would then have another's gradients in it, and choosing a single head would no longer cost nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from learning.array_checks import Floats
from learning.checkpoint import Checkpoint
from learning.config import HeadName, ModelConfig, TrainConfig
from learning.data.table import Dataset
from learning.errors import ConfigError
from learning.evaluation import evaluate
from learning.metrics import bucket_index
from learning.pool import Pool
from learning.training import Encoded, finished, split, usual_logit_variance

# CR leads: the pool is read at its bin edges.
HEADS: tuple[HeadName, HeadName] = ("cr", "qr")
VALIDATION = 0.05
# A pool takes two networks to answer, so it has to be better by this share of the NLL.
WORTH = 0.002
_FLOOR = 1e-12


@dataclass(frozen=True)
class Choice:
    """Validation NLL of both heads and of their best pool, QR's weight in it, and what is taken."""

    qr_nll: float
    cr_nll: float
    pool_nll: float
    qr_weight: float

    @property
    def head(self) -> Literal["qr", "cr", "pool"]:
        if self.pool_nll < min(self.qr_nll, self.cr_nll) * (1.0 - WORTH):
            return "pool"
        return "qr" if self.qr_nll < self.cr_nll else "cr"


def best_weight(qr: Floats, cr: Floats) -> Choice:
    """From the probability [n] that each head gave to what happened. The pool's NLL is convex in the weight."""

    def nll(weight: float) -> float:
        return float(-np.mean(np.log(np.maximum(weight * qr + (1.0 - weight) * cr, _FLOOR))))

    found = minimize_scalar(nll, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-3})
    return Choice(nll(1.0), nll(0.0), float(found.fun), float(found.x))


def choose(dataset: Dataset, cr: Checkpoint, qr: Checkpoint) -> Pool:
    """The pool, or the one head, that the validation part of `dataset` favours."""
    config = qr.train_config
    parts = split(dataset, config)
    if parts.validation is None:
        raise ConfigError("--head auto chooses on validation rows: give --validation a share")
    choice = best_weight(*(_probability_of_truth(checkpoint, parts.validation) for checkpoint in (qr, cr)))
    both = Pool((cr, qr), (1.0 - choice.qr_weight, choice.qr_weight))
    pool = {"pool": both, "cr": Pool((cr,)), "qr": Pool((qr,))}[choice.head]
    usual = usual_logit_variance(pool.predict, Encoded.of(parts.train, pool.first.encoding), config.seed)
    figures = {f"validation_{name}": value for name, value in vars(choice).items()}
    own = {name: value for name, value in pool.first.metrics.items() if name in ("epochs", "train_rows")}
    return Pool(pool.checkpoints, pool.weights, {**own, **usual, **figures})


def trained_before(out: Path, fingerprint: str, model: ModelConfig, train: TrainConfig) -> Checkpoint | None:
    """The finished run in `out`, if it is of the same data and options."""
    if not finished(out):
        return None
    kept = Checkpoint.load(out)
    same = (kept.fingerprint, kept.model_config, kept.train_config) == (fingerprint, model, train)
    return kept if same else None


def _probability_of_truth(checkpoint: Checkpoint, dataset: Dataset) -> Floats:
    """[n]: of the bucket, of the metric's ten, in which each target lies."""
    judged = evaluate(checkpoint, dataset)
    truth = bucket_index(judged.y, judged.edges)
    return judged.masses[np.arange(len(truth)), truth].astype(np.float64)
