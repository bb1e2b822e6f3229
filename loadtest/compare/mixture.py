"""The predictive distribution of an ensemble: the mixture of its members' distributions with equal weights.

Needs only numpy and `ghostless.contract.distribution`, so that Triton's Python backend can use the same code.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.distribution import Knots, quantiles

# Outputs of a mixture, and the outputs of the members that each one needs. logit_variance is missing, because the raw
# outputs never leave a member. Members are deterministic and have no epistemic variance themselves.
_SOURCES: Mapping[str, tuple[str, ...]] = {
    metadata.MEAN: (metadata.MEAN,),
    metadata.QUANTILES: (metadata.CDF,),
    metadata.BINS: (metadata.BINS,),
    metadata.ATOMS: (metadata.ATOMS,),
    metadata.CDF: (metadata.CDF,),
    metadata.ALEATORIC: (metadata.ALEATORIC,),
    metadata.EPISTEMIC: (metadata.MEAN,),
    metadata.EPISTEMIC_CANDIDATE: (metadata.MEAN,),
    metadata.EPISTEMIC_LAST_LAYER: (metadata.EPISTEMIC_LAST_LAYER,),
    metadata.CATEGORICAL_ALEATORIC: (metadata.CATEGORICAL_ALEATORIC,),
    metadata.CATEGORICAL_EPISTEMIC: (metadata.CATEGORICAL_ALEATORIC, metadata.CDF),
    metadata.CATEGORICAL_EPISTEMIC_DELTA: (metadata.CATEGORICAL_ALEATORIC, metadata.CDF),
    metadata.DENSITY: (metadata.DENSITY,),
    # Equal in all members, because they were trained on the same rows.
    metadata.UNKNOWN_IDS: (metadata.UNKNOWN_IDS,),
}


def merged_outputs(outputs: Sequence[str]) -> tuple[str, ...]:
    """The outputs that a mixture has if its members have these outputs."""
    return tuple(name for name in outputs if name in _SOURCES and set(_SOURCES[name]) <= set(outputs))


def member_outputs(wanted: Sequence[str]) -> tuple[str, ...]:
    """The outputs that each member must return so that the mixture has the outputs `wanted`."""
    return tuple(dict.fromkeys(source for name in wanted for source in _SOURCES[name]))


def merge_members(members: Sequence[Tensors], wanted: Sequence[str], knots: Knots, levels: Array) -> dict[str, Array]:
    """The mixture's outputs `wanted`, [rows, ...] each. CDF, bins, atoms and densities are averages; aleatoric is the
    mean of the members' variances and epistemic the variance of their means (the law of total variance)."""
    merged: dict[str, Array] = {}
    averages: dict[str, Array] = {}

    def average(name: str) -> Array:
        if name not in averages:
            averages[name] = _average([outputs[name] for outputs in members])
        return averages[name]

    for name in wanted:
        if name == metadata.QUANTILES:
            merged[name] = quantiles(average(metadata.CDF), knots, levels)
        elif name in (metadata.EPISTEMIC, metadata.EPISTEMIC_CANDIDATE):
            means = np.stack([outputs[metadata.MEAN] for outputs in members])
            merged[name] = means.var(axis=0)
        elif name in (metadata.CATEGORICAL_EPISTEMIC, metadata.CATEGORICAL_EPISTEMIC_DELTA):
            mass = np.diff(average(metadata.CDF), axis=1)
            impurity = 1.0 - np.einsum("nk,nk->n", mass, mass)
            merged[name] = np.maximum(impurity - average(metadata.CATEGORICAL_ALEATORIC), 0.0)
        else:
            merged[name] = average(name)
    return merged


def _average(parts: Sequence[Array]) -> Array:
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    total *= np.float32(1.0 / len(parts))
    return total
