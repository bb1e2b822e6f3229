"""Scores for choosing rows to label: the acquisition functions of the paper's section on active learning.

All rank the same pool with the same trained model, so that only the ranking differs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from ghostless.contract.errors import ConfigError
from learning.array_checks import Floats
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.linear_pool import LinearPool
from learning.training import INFERENCE_ROWS, Encoded
from research.baselines.dropout import mc_dropout

# top: the rows with the highest scores. power: rows drawn without replacement, with probability proportional to the
# score (Kirsch et al. 2023), so that a batch does not consist of many similar rows.
BatchRule = Literal["top", "power"]
NAMES = "random, epistemic, total, bald-vbll, bald-mcd, hybrid:GAMMA, scaled:GAMMA"


@dataclass(frozen=True)
class VarianceSplit:
    """The variance split of every row of a pool, each [n]."""

    aleatoric: Floats
    epistemic: Floats


# Takes a checkpoint, the pool [n] and a seed; returns scores [n]. The highest are labelled first.
Score = Callable[[Checkpoint, Table, int], Floats]


def parse(text: str) -> tuple[str, BatchRule]:
    """A strategy's name and how it fills a batch: `hybrid:0.1`, `bald-vbll+power`."""
    name, _, batch = text.partition("+")
    strategy(name)
    if batch not in ("", "power"):
        raise ConfigError(f"strategy '{text}': '+{batch}' is not known; expected +power or nothing")
    return name, "power" if batch else "top"


def strategy(name: str) -> Score:
    """The acquisition function with that name."""
    kind, _, number = name.partition(":")
    plain: dict[str, Score] = {
        "random": _random,
        "epistemic": _hybrid(0.0),
        "total": _hybrid(1.0),
        "bald-vbll": _ratio,
        "bald-mcd": _dropout_disagreement,
    }
    if name in plain:
        return plain[name]
    if kind in ("hybrid", "scaled"):
        return (_hybrid if kind == "hybrid" else _scaled)(_gamma(name, number))
    raise ConfigError(f"no strategy '{name}'; expected some of {NAMES}")


def choose(scores: Floats, count: int, batch: BatchRule, seed: int) -> npt.NDArray[np.int64]:
    """Positions of `count` rows to label, for non-negative scores [n]."""
    if batch == "power":
        # Taking the largest values of log score plus Gumbel noise is equivalent to such draws.
        noise = np.random.default_rng((seed, 1)).gumbel(size=len(scores))
        scores = np.log(np.maximum(scores, np.finfo(np.float64).tiny)) + noise
    return np.sort(np.argsort(-scores, kind="stable")[:count])


@torch.no_grad()
def moments(checkpoint: Checkpoint, pool: Table) -> VarianceSplit:
    """Evaluate the pool once."""
    network = checkpoint.network.eval()
    parts = [
        (predictive.aleatoric(), predictive.epistemic())
        for columns, _ in Encoded.of(pool, checkpoint.encoding).batches(INFERENCE_ROWS)
        for predictive in (network.predict(columns),)
    ]
    aleatoric, epistemic = (torch.cat(values).double().numpy() for values in zip(*parts, strict=True))
    return VarianceSplit(aleatoric, epistemic)


def _gamma(name: str, number: str) -> float:
    try:
        gamma = float(number)
    except ValueError:
        gamma = float("nan")
    if not 0.0 <= gamma < float("inf"):
        raise ConfigError(f"strategy '{name}': expected a number of at least 0 after the colon, as in hybrid:0.1")
    return gamma


def _random(checkpoint: Checkpoint, pool: Table, seed: int) -> Floats:
    return np.random.default_rng(seed).random(pool.rows)


def _hybrid(gamma: float) -> Score:
    """Eq. (acquisition_function): epistemic + gamma aleatoric. 0 is pure epistemic, 1 the total variance."""

    def score(checkpoint: Checkpoint, pool: Table, seed: int) -> Floats:
        split = moments(checkpoint, pool)
        return split.epistemic + gamma * split.aleatoric

    return score


def _scaled(gamma: float) -> Score:
    """The same with each part divided by its mean in the pool, so that gamma weighs their variation instead of their
    size."""

    def score(checkpoint: Checkpoint, pool: Table, seed: int) -> Floats:
        split = moments(checkpoint, pool)
        scores: Floats = split.epistemic / split.epistemic.mean() + gamma * split.aleatoric / split.aleatoric.mean()
        return scores

    return score


def _ratio(checkpoint: Checkpoint, pool: Table, seed: int) -> Floats:
    """BALD-VBLL: the epistemic share of the total variance, in closed form."""
    split = moments(checkpoint, pool)
    share: Floats = split.epistemic / (split.epistemic + split.aleatoric)
    return share


@torch.no_grad()
def _dropout_disagreement(checkpoint: Checkpoint, pool: Table, seed: int) -> Floats:
    """BALD-MCD: variance of the predicted mean over 25 passes with active dropout."""
    network = checkpoint.network.eval()
    predict = mc_dropout(network, network.predict, seed=seed)
    parts = []
    for columns, _ in Encoded.of(pool, checkpoint.encoding).batches(INFERENCE_ROWS):
        pool_of_passes = predict(columns)
        assert isinstance(pool_of_passes, LinearPool)
        means = torch.stack([once.mean() for once in pool_of_passes.members])
        parts.append(means.var(0, correction=0))
    disagreement: Floats = torch.cat(parts).double().numpy()
    return disagreement
