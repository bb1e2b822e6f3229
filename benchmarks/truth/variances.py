"""Whether the served epistemic variance has the right size: pairs of held-out rows, unknown ids, and the known error on
the synthetic world.

Only served outputs are used, of models without factors. Two rows of one user and different videos share what
epistemic_candidate leaves out; two rows of one video and different users share the rest, minus the last layer's part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.truth.parts import Parts
from ghostless.contract.pair_test import ALL, ENOUGH_PAIRS, MASKED, PairFigure, PairRows, masked_figure, pair_figures

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Served:
    """Outputs for n rows, [n] each: mean, and variances in squared target units."""

    mean: Floats
    epistemic: Floats
    candidate: Floats
    last_layer: Floats

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[np.float32]], prefix: str = "") -> "Served":
        names = ("mean", "epistemic", "candidate", "last_layer")
        return cls(*(arrays[f"{prefix}{name}"].astype(np.float64) for name in names))

    def roots(self) -> tuple[Floats, Floats]:
        """[n, 1] each: covariance of two rows that share the context's id, and of two that share the candidate's."""
        shared = np.maximum(self.epistemic - self.candidate, 0.0), np.maximum(self.candidate - self.last_layer, 0.0)
        context, candidate = (np.sqrt(part)[:, None] for part in shared)
        return context, candidate


def judge_pairs(parts: Parts, served: Served, masked: Sequence[Served]) -> list[PairFigure]:
    """The pair tests of a context id and a candidate id, in the schema's order; masked: outputs with each of them
    unknown."""
    names = parts.judged.schema.id_names
    figures = pair_figures(_rows(parts, served))
    for name, answers in zip(names, masked, strict=True):
        figure = masked_figure(_rows(parts, answers), name)
        figures += [] if figure is None else [figure]
    return figures


def judge_members(parts: Parts, members: Sequence[Served]) -> list[PairFigure]:
    """The pair tests of an ensemble. The variance of its members' means does not tell which id it belongs to. So all of
    it counts as shared by rows of one id, which is an upper bound."""
    means = np.stack([member.mean for member in members])
    root = means.std(0)[:, None]
    names = parts.judged.schema.id_names
    return pair_figures(_pair_rows(parts, means.mean(0), dict.fromkeys(names, root)))


def _rows(parts: Parts, served: Served) -> PairRows:
    names = parts.judged.schema.id_names
    return _pair_rows(parts, served.mean, dict(zip(names, served.roots(), strict=True)))


def _pair_rows(parts: Parts, mean: Floats, roots: Mapping[str, Floats]) -> PairRows:
    names = parts.judged.schema.id_names
    return PairRows(
        residual=parts.judged.target - mean,
        roots=roots,
        ids={name: parts.judged.columns[name] for name in names},
        history={name: parts.history(name) for name in names},
    )


def disagreeing(figures: Sequence[PairFigure]) -> int:
    """Buckets of history with enough pairs whose ratio is outside [0.5, 2] by more than two standard errors."""
    return sum(
        figure.verdict == "disagrees"
        for figure in figures
        if figure.history not in (ALL, MASKED) and figure.pairs >= ENOUGH_PAIRS
    )


def falls_with_history(figures: Sequence[PairFigure], feature: str) -> bool:
    """Whether the served variance decreases over the buckets with enough pairs, and is largest for unknown ids."""
    own = [figure for figure in figures if figure.feature == feature and figure.history not in (ALL, MASKED)]
    judged = [figure.served for figure in own if figure.pairs >= ENOUGH_PAIRS]
    unknown = next((figure.served for figure in own if figure.history == "0"), float("inf"))
    falls = len(judged) > 1 and all(later < earlier for earlier, later in pairwise(judged))
    return falls and unknown >= max(figure.served for figure in own if figure.pairs >= ENOUGH_PAIRS)
