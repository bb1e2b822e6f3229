"""The pair test: checks the epistemic variance without knowing the true distribution.

For held-out rows i, j that share an id, E[r_i r_j] with r = y - mean is the variance of the error that they share. It
is compared with the covariance that is served for them,

    sqrt(s_i s_j) times the sum, over all ids that the two rows share, of the effects' covariance

averaged over the same pairs, where s is V / (e + Nbar) with gamma 1, and 1 with gamma 0 (heads.closed_forms.split).
Figures are computed by history of the id and weighted by pairs; standard errors come from a bootstrap over ids. Pairs
that agree in every id are left out, because they share more than the effects of their ids.

Masked pairs are pairs of rows that are predicted with the id as unknown, weighted by ids: they show what the variance
of a new id should be.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Verdict = Literal["agrees", "disagrees", "unverified"]

# Buckets of the number of training rows with the id; the last one has no upper end.
HISTORY = ((0, 0), (1, 2), (3, 5), (6, 9), (10, 19), (20, 49), (50, 199), (200, None))
ALL, MASKED = "all", "masked"
# Minimum number of pairs for a verdict.
ENOUGH_PAIRS = 1_000
# Bounds of served / measured: a figure agrees within these bounds, or within its standard errors.
BOUNDS = {ALL: (0.75, 1.0 / 0.75), MASKED: (0.6, 1.0 / 0.6)}
BUCKET_BOUNDS = (0.5, 2.0)
STANDARD_ERRORS = 2.0
# Among many figures, some are off by two standard errors by chance. A figure that is off by this many refutes the
# split.
REFUTING_ERRORS = 3.0
_RESAMPLES = 200


@dataclass(frozen=True)
class PairFigure:
    """Means over pairs of rows that share an id of `feature`, in target units squared: products of residuals with their
    standard error, and the served covariance. `history` is a bucket, "all" or "masked"."""

    feature: str
    history: str
    ids: int
    pairs: int
    measured: float
    error: float
    served: float

    @property
    def ratio(self) -> float:
        """served / measured; NaN if nothing was measured."""
        return self.served / self.measured if self.measured > 0 else float("nan")

    @property
    def verdict(self) -> Verdict:
        if self.pairs < ENOUGH_PAIRS or not np.isfinite(self.error):
            return "unverified"
        low, high = self.bounds
        is_near = abs(self.served - self.measured) <= STANDARD_ERRORS * self.error
        return "agrees" if is_near or low <= self.ratio <= high else "disagrees"

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the ratio."""
        return BOUNDS.get(self.history, BUCKET_BOUNDS)

    @property
    def refutes(self) -> bool:
        """Whether the ratio is out of bounds for every variance within REFUTING_ERRORS standard errors of the measured
        one."""
        low, high = self.bounds
        least, most = (self.measured + sign * REFUTING_ERRORS * self.error for sign in (-1.0, 1.0))
        return self.verdict == "disagrees" and not low * least <= self.served <= high * most


@dataclass(frozen=True)
class PairTest:
    """Figures of `rows` rows: by id feature and history bucket, for all histories together, and masked."""

    rows: int
    figures: tuple[PairFigure, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict over all figures: a single refuting figure decides; without enough pairs it is unverified."""
        if all(figure.verdict == "unverified" for figure in self.figures):
            return "unverified"
        return "disagrees" if any(figure.refutes for figure in self.figures) else "agrees"

    def of(self, feature: str) -> list[PairFigure]:
        return [figure for figure in self.figures if figure.feature == feature]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; undefined values are None."""
        return {"rows": self.rows, "verdict": self.verdict, "figures": [_plain(figure) for figure in self.figures]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PairTest":
        names = ("feature", "history", "ids", "pairs", "measured", "error", "served")
        figures = [{name: figure[name] for name in names} for figure in values["figures"]]
        for figure in figures:
            figure["error"] = float("nan") if figure["error"] is None else figure["error"]
        return cls(int(values["rows"]), tuple(PairFigure(**figure) for figure in figures))


@dataclass(frozen=True)
class PairRows:
    """n held-out rows with residuals r [n].

    By id feature: roots [n, k], where root_i . root_j is the covariance of rows i and j with the same id; ids [n], the
    raw values; history [n], the number of training rows with the id.
    """

    residual: Floats
    roots: Mapping[str, Floats]
    ids: Mapping[str, Array]
    history: Mapping[str, Ints]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.ids)


@dataclass(frozen=True)
class Groups:
    """Rows grouped by a key: the group of each row [n], and the number of groups."""

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
        """For each group, the sum over its pairs of values_i . values_j, for values [n] or [n, k]."""
        sums = np.zeros(self.count)
        for column in np.atleast_2d(values.T):
            total = np.bincount(self.of_row, column, self.count)
            squares = np.bincount(self.of_row, column**2, self.count)
            sums += 0.5 * (total**2 - squares)
        return sums

    def pair_sums_in(self, outer: "Groups", values: Floats) -> Floats:
        """Pair sums of these groups, added up by group of `outer`; each group is part of one group of `outer`."""
        where = np.zeros(self.count, np.int64)
        where[self.of_row] = outer.of_row
        return np.bincount(where, self.pair_sums(values), outer.count).astype(np.float64)


@dataclass(frozen=True)
class IdSums:
    """For each id of a feature: its history, and the sums over its pairs of 1, r_i r_j and the served covariance."""

    history: Ints
    pairs: Floats
    measured: Floats
    served: Floats

    def per_pair(self) -> "IdSums":
        """The same with every id counted as one pair, the mean of its pairs."""
        return IdSums(self.history, np.ones(len(self.pairs)), self.measured / self.pairs, self.served / self.pairs)


def id_sums(rows: PairRows, feature: str) -> IdSums:
    """Sums over pairs of rows that share an id of `feature`. Pairs that agree in every id are left out if there are two
    or more id features."""
    groups = Groups.by(rows.ids[feature])
    others = [name for name in rows.names if name != feature]
    same = Groups.by(groups.of_row, *(rows.ids[name] for name in others)) if others else None

    def kept_sums(within: Groups, values: Floats) -> Floats:
        total = within.pair_sums_in(groups, values)
        return total if same is None else total - same.pair_sums_in(groups, values)

    served = kept_sums(groups, rows.roots[feature])
    for name in others:
        # A pair that shares a second id shares its effect, too.
        served = served + kept_sums(Groups.by(groups.of_row, rows.ids[name]), rows.roots[name])
    pairs = kept_sums(groups, np.ones(len(rows.residual)))
    measured = kept_sums(groups, rows.residual)
    history = np.zeros(groups.count, np.int64)
    history[groups.of_row] = rows.history[feature]
    some = pairs > 0.5
    return IdSums(history[some], pairs[some], measured[some], served[some])


def pair_figures(rows: PairRows) -> list[PairFigure]:
    """Figures of every id feature by history bucket, then for "all"; buckets without pairs are omitted."""
    figures = []
    for feature in rows.names:
        sums = id_sums(rows, feature)
        if not len(sums.pairs):
            continue
        for low, high in HISTORY:
            inside = (sums.history >= low) & (sums.history <= (np.inf if high is None else high))
            label = f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"
            if inside.any():
                figures.append(_figure(feature, label, sums, inside))
        figures.append(_figure(feature, ALL, sums, np.ones(len(sums.pairs), bool)))
    return figures


def masked_figure(rows: PairRows, feature: str) -> PairFigure | None:
    """The figure for rows that were predicted with `feature` unknown. Every id counts once. None without pairs."""
    sums = id_sums(rows, feature)
    if not len(sums.pairs):
        return None
    every = np.ones(len(sums.pairs), bool)
    return _figure(feature, MASKED, sums.per_pair(), every, round(float(sums.pairs.sum())))


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
        error=standard_error(products, counts),
        served=float(sums.served[inside].sum()) / total,
    )


def standard_error(products: Floats, counts: Floats) -> float:
    """Standard error of sum(products) / sum(counts), by a bootstrap over ids [k]; NaN for a single id."""
    ids = len(counts)
    if ids < 2:
        return float("nan")
    random = np.random.default_rng(0)
    drawn = np.empty(_RESAMPLES)
    for place in range(_RESAMPLES):
        weights = np.bincount(random.integers(0, ids, ids), minlength=ids)
        drawn[place] = (weights @ products) / (weights @ counts)
    return float(drawn.std(ddof=1))


def _plain(figure: PairFigure) -> dict[str, Any]:
    values = {**asdict(figure), "ratio": figure.ratio, "verdict": figure.verdict}
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value for name, value in values.items()
    }
