"""The pair test: a judge of epistemic variance that needs no truth. numpy only.

For held-out rows i, j that share an id, E[r_i r_j] with r = y - mean is the variance of the error they have in common.
Two figures stand beside it, both means over the same pairs:

    served    sqrt(e_i e_j), e the epistemic variance that the model serves
    effects   sqrt(V_i V_j) / Vbar times the sum, over all ids that the two rows share, of the effects' variance v

`served` is the largest covariance that the served variances allow, so a value far below the measured one refutes them,
and a value above it proves nothing. Figures are by history of the id and weighted by pairs; standard errors come from a
bootstrap over ids. Pairs that agree in every id are left out: they share more than their ids' effects.

Masked pairs are the same with the id sent to its unknown row, weighted by ids: what a cold id's variance should be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Verdict = Literal["too small", "possible", "unverified"]

# How often training saw the id; the last bucket has no upper end.
HISTORY = ((0, 0), (1, 2), (3, 5), (6, 9), (10, 19), (20, 49), (50, 199), (200, None))
# With fewer pairs there is no verdict.
ENOUGH_PAIRS = 1_000
# Served over measured below which the served variance is too small, if the standard error allows that too.
LEAST_RATIO = 0.5
STANDARD_ERRORS = 2.0
_RESAMPLES = 200


@dataclass(frozen=True)
class PairFigure:
    """Means over pairs of rows that share an id of `feature`: products of residuals with their standard error, and
    both variances (see the module). In target units squared."""

    feature: str
    history: str
    ids: int
    pairs: int
    measured: float
    error: float
    served: float
    effects: float

    @property
    def served_ratio(self) -> float:
        return self.served / self.measured if self.measured > 0 else float("nan")

    @property
    def effects_ratio(self) -> float:
        return self.effects / self.measured if self.measured > 0 else float("nan")

    @property
    def verdict(self) -> Verdict:
        """Of the served variance."""
        if self.pairs < ENOUGH_PAIRS or not np.isfinite(self.error):
            return "unverified"
        is_small = self.served < LEAST_RATIO * self.measured
        return "too small" if is_small and self.served < self.measured - STANDARD_ERRORS * self.error else "possible"


@dataclass(frozen=True)
class PairRows:
    """n held-out rows. residual: r; total: V; epistemic: e; each [n].

    By id feature, [n] each. parts: c, where rows i, j of one id share sqrt(c_i c_j) by its effect; ids: raw values;
    history: rows of the id in training.
    """

    residual: Floats
    total: Floats
    epistemic: Floats
    parts: Mapping[str, Floats]
    ids: Mapping[str, Array]
    history: Mapping[str, Ints]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.ids)

    def effect_roots(self, level: float) -> dict[str, Floats]:
        """By feature, [n]: the covariance of two rows by its effect is the product of theirs. level: Vbar."""
        relative = np.sqrt(np.maximum(self.total, 0.0) / level)
        return {name: np.sqrt(np.maximum(part, 0.0)) * relative for name, part in self.parts.items()}


@dataclass(frozen=True)
class Groups:
    """Rows grouped by a key: which group each row is in [n], and how many groups."""

    of_row: Ints
    count: int

    @classmethod
    def by(cls, *keys: Array) -> "Groups":
        joined = np.zeros(len(keys[0]), np.int64)
        for key in keys:
            _, code = np.unique(key, return_inverse=True)
            _, joined = np.unique(joined * (int(code.max(initial=0)) + 1) + code, return_inverse=True)
        return cls(joined.astype(np.int64), int(joined.max(initial=-1)) + 1)

    def pair_sums(self, values: Floats) -> Floats:
        """Of each group the sum over its pairs of values_i values_j."""
        total = np.bincount(self.of_row, values, self.count)
        squares = np.bincount(self.of_row, values**2, self.count)
        return (0.5 * (total**2 - squares)).astype(np.float64)

    def pair_sums_in(self, outer: "Groups", values: Floats) -> Floats:
        """Pair sums of these groups, added up by group of `outer`, of which each of these is a part."""
        where = np.zeros(self.count, np.int64)
        where[self.of_row] = outer.of_row
        return np.bincount(where, self.pair_sums(values), outer.count).astype(np.float64)


@dataclass(frozen=True)
class IdSums:
    """Of each id of a feature: its history, and sums over its pairs of 1, r_i r_j and both variances."""

    history: Ints
    pairs: Floats
    measured: Floats
    served: Floats
    effects: Floats

    def per_pair(self) -> "IdSums":
        """Every id counts as one pair, its mean."""
        return IdSums(
            self.history,
            np.ones(len(self.pairs)),
            self.measured / self.pairs,
            self.served / self.pairs,
            self.effects / self.pairs,
        )


def id_sums(rows: PairRows, feature: str, level: float) -> IdSums:
    """Pairs of rows that share `feature`; those that agree in every id are left out where there are two ids or more."""
    groups = Groups.by(rows.ids[feature])
    others = [name for name in rows.names if name != feature]
    same = Groups.by(groups.of_row, *(rows.ids[name] for name in others)) if others else None

    def kept_sums(within: Groups, values: Floats) -> Floats:
        total = within.pair_sums_in(groups, values)
        return total if same is None else total - same.pair_sums_in(groups, values)

    roots = rows.effect_roots(level)
    effects = kept_sums(groups, roots[feature])
    for name in others:
        # A pair that shares a second id has that effect in common, too.
        effects = effects + kept_sums(Groups.by(groups.of_row, rows.ids[name]), roots[name])
    pairs = kept_sums(groups, np.ones(len(rows.residual)))
    measured = kept_sums(groups, rows.residual)
    served = kept_sums(groups, np.sqrt(np.maximum(rows.epistemic, 0.0)))
    history = np.zeros(groups.count, np.int64)
    history[groups.of_row] = rows.history[feature]
    some = pairs > 0.5
    # Differences of sums may be negative by rounding.
    variances = np.maximum(served[some], 0.0), np.maximum(effects[some], 0.0)
    return IdSums(history[some], pairs[some], measured[some], *variances)


def pair_figures(rows: PairRows, level: float) -> list[PairFigure]:
    """For every id feature by bucket of history, then "all"; buckets without pairs are left out."""
    figures = []
    for feature in rows.names:
        sums = id_sums(rows, feature, level)
        if not len(sums.pairs):
            continue
        for low, high in HISTORY:
            inside = (sums.history >= low) & (sums.history <= (np.inf if high is None else high))
            label = f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"
            if inside.any():
                figures.append(_figure(feature, label, sums, inside))
        figures.append(_figure(feature, "all", sums, np.ones(len(sums.pairs), bool)))
    return figures


def masked_figure(rows: PairRows, feature: str, level: float) -> PairFigure | None:
    """rows: predicted with `feature` unknown. Every id counts once. None without pairs."""
    sums = id_sums(rows, feature, level)
    if not len(sums.pairs):
        return None
    return _figure(feature, "masked", sums.per_pair(), np.ones(len(sums.pairs), bool), round(float(sums.pairs.sum())))


def _figure(
    feature: str, history: str, sums: IdSums, inside: npt.NDArray[np.bool_], pairs: int | None = None
) -> PairFigure:
    counts, products = sums.pairs[inside], sums.measured[inside]
    total = float(counts.sum())
    return PairFigure(
        feature=feature,
        history=history,
        ids=len(counts),
        pairs=round(total) if pairs is None else pairs,
        measured=float(products.sum()) / total,
        error=_standard_error(products, counts),
        served=float(sums.served[inside].sum()) / total,
        effects=float(sums.effects[inside].sum()) / total,
    )


def _standard_error(products: Floats, counts: Floats) -> float:
    """Of sum(products) / sum(counts), by a bootstrap over ids [k]; NaN for a single id."""
    ids = len(counts)
    if ids < 2:
        return float("nan")
    random = np.random.default_rng(0)
    drawn = np.empty(_RESAMPLES)
    for place in range(_RESAMPLES):
        weights = np.bincount(random.integers(0, ids, ids), minlength=ids)
        drawn[place] = (weights @ products) / (weights @ counts)
    return float(drawn.std(ddof=1))
