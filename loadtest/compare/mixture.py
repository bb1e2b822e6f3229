"""The predictive distribution of an ensemble, from its members' answers: their mixture with equal weights.

Only numpy and the CDF's own reading are needed, so that Triton's Python backend can merge with the same code.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.distribution import Knots, quantiles

# Outputs of a mixture, and what each member must be asked for. The raw outputs never leave a member, so that how far
# they disagree (logit_variance) can't be told. Members are deterministic: they have no epistemic part of their own.
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
    # The same in all members: they saw the same rows.
    metadata.UNKNOWN_IDS: (metadata.UNKNOWN_IDS,),
}


def merged_outputs(outputs: Sequence[str]) -> tuple[str, ...]:
    """What a mixture of members with these outputs can answer with."""
    return tuple(name for name in outputs if name in _SOURCES and set(_SOURCES[name]) <= set(outputs))


def member_outputs(wanted: Sequence[str]) -> tuple[str, ...]:
    """What each member must be asked for, so that the mixture has `wanted`."""
    return tuple(dict.fromkeys(source for name in wanted for source in _SOURCES[name]))


def merge_members(members: Sequence[Tensors], wanted: Sequence[str], knots: Knots, levels: Array) -> dict[str, Array]:
    """The mixture's outputs `wanted`, rows leading. CDF, bins, atoms and densities are averages; aleatoric is the mean
    of the members' variances and epistemic the variance of their means (the law of total variance)."""
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
