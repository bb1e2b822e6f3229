"""Effects of ids as inputs of the network: columns of the id tables that are fitted in closed form instead of trained.

The last columns of an id's embedding are its effect, its factors if there are any (ghostless.heads.effects and
factors), both in standard deviations of their priors, and log(v / t^2), which indicates how well the id is known. These
columns give the network the result of a least squares fit with separate shrinkage for each id, which the network then
corrects. They are fitted to targets that are rounded relative to their range (`unit_free`), so that they do not depend
on the target's unit, not even in the last digit.

A training row must not read columns that were fitted to its own target, because in training they would predict better
than they do for held-out rows. So the training rows are divided into FOLDS parts, and a row reads columns that were
fitted to the other parts. Held-out and served rows read columns that were fitted to all training rows; these are the
values in the table. Factors are determined only up to a rotation, so the factors of a part are rotated to those of all
rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghostless.heads.effect_variance import EffectVariance
from ghostless.heads.effects import EffectRows, Effects, Floats, SideColumns
from ghostless.heads.factors import Factors, fit_factors
from learning.data.encoding import Encoding

FOLDS = 5
# Key of a training row's part in a batch of encoded features.
FOLD_KEY = "/fold"
# Sizes of the columns: comparable to embeddings, which start at a standard deviation of 0.1 and grow.
EFFECT_SCALE = 0.3
KNOWN_SCALE = 0.1
# Number of groups of training targets by rank, and number of levels of the targets' range to which a group's mean is
# rounded.
GROUPS = 256
LEVELS = 1024.0
# A golden-ratio multiplier: consecutive codes get unrelated hashes.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Columns = Mapping[str, Floats]


@dataclass(frozen=True)
class EffectInputs:
    """By id feature: columns [rows, w] fitted to all training rows, and [FOLDS, rows, w] fitted without each part."""

    columns: Mapping[str, Tensor]
    without: Mapping[str, Tensor]

    def __deepcopy__(self, memo: dict[int, Any]) -> "EffectInputs":
        # It never changes, so a network and the average of its weights can share it.
        return self

    def width(self, name: str) -> int:
        """Number of columns of an id feature; 0 if its embedding has no room for them."""
        return self.columns[name].shape[1] if name in self.columns else 0


def fold_of(encoding: Encoding, codes: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The part [n] of training rows with table rows `codes` [n, F] and targets y [n]. It is a hash of both, so that it
    does not depend on the order in which rows are read. Only the rank of y among the training targets is used, so that
    the same rows in another unit are divided in the same way."""
    mixed = _places(encoding, y).astype(np.uint64)
    for column in codes.T:
        mixed = (mixed ^ column.astype(np.uint64)) * _MULTIPLIER
        mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(FOLDS)).astype(np.int64)


def fit_inputs(encoding: Encoding, rows: EffectRows, fitted: EffectVariance) -> EffectInputs:
    """The columns of all id features whose embeddings are wide enough. rows: the training rows, to which `fitted` was
    fitted."""
    room = {feature.name: feature.embedding for feature in encoding.schema.features if feature.kind == "id"}
    folds = fold_of(encoding, rows.codes, rows.y)
    plain = EffectRows(rows.names, rows.heights, rows.sizes, rows.codes, rows.side, unit_free(encoding, rows.y))
    effects, factors = _fitted(plain, fitted.factors)
    found = _columns(effects, factors, None)
    names = [name for name in rows.names if 2 * found[name].shape[1] <= room[name]]
    parts = [
        _columns(*_fitted(_without(plain, folds, fold), fitted.factors), factors)
        for fold in (range(FOLDS) if names else ())
    ]
    return EffectInputs(
        {name: _single(found[name]) for name in names},
        {name: _single(np.stack([part[name] for part in parts])) for name in names},
    )


def _places(encoding: Encoding, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Ranks [n] of targets y [n] among the training targets."""
    return np.searchsorted(encoding.target_sample, y).astype(np.int64)


def unit_free(encoding: Encoding, y: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Replace targets y [n] by the mean of training targets with a similar rank, as a share of the training targets'
    range, rounded to multiples of 1 / LEVELS. The result does not depend on the unit, unless float32 makes two targets
    equal."""
    sample = encoding.target_sample.astype(np.float64)
    group = np.arange(len(sample)) * GROUPS // len(sample)
    span = float(sample[-1] - sample[0]) or 1.0
    means = np.bincount(group, (sample - sample[0]) / span, GROUPS) / np.maximum(
        np.bincount(group, minlength=GROUPS), 1
    )
    levels = (np.round(LEVELS * means) / LEVELS).astype(np.float32)
    return levels[group[np.minimum(_places(encoding, y), len(sample) - 1)]]


def _fitted(rows: EffectRows, like: Factors | None) -> tuple[Effects, Factors | None]:
    """Effects of the rows, and factors with the pair and the rank of `like`."""
    effects = rows.fit()
    return effects, None if like is None else fit_factors(rows, effects, like.pair, like.rank)


def _columns(effects: Effects, factors: Factors | None, aligned_to: Factors | None) -> Columns:
    """Columns [rows, w] of every id feature; factors are rotated towards `aligned_to`."""
    pair = () if factors is None else factors.pair
    turn = None if factors is None or aligned_to is None else _rotation(factors, aligned_to)
    found: dict[str, Floats] = {}
    for name in effects.names:
        if factors is not None and name in pair:
            side = pair.index(name)
            mean, priors = factors.means[side], np.diag(factors.covariances[side][0])
            known = factors.covariances[side][:, 0, 0] / priors[0]
            standard = mean / np.sqrt(priors)
            if turn is not None:
                standard[:, 1:] = standard[:, 1:] @ turn
        else:
            known = effects.variance[name] / effects.priors[name]
            standard = (effects.mean[name] / np.sqrt(effects.priors[name]))[:, None]
        found[name] = np.column_stack([EFFECT_SCALE * standard, KNOWN_SCALE * np.log(known)])
    return found


def _rotation(factors: Factors, aligned_to: Factors) -> Floats:
    """The rotation [r, r] of `factors` that brings both sides nearest to those of `aligned_to` (Procrustes)."""

    def stacked(one: Factors) -> Floats:
        sides = zip(one.means, one.covariances, strict=True)
        return np.concatenate([mean[:, 1:] / np.sqrt(covariance[0, 1, 1]) for mean, covariance in sides])

    left, _, right = np.linalg.svd(stacked(factors).T @ stacked(aligned_to))
    turn: Floats = left @ right
    return turn


def _without(rows: EffectRows, folds: npt.NDArray[np.int64], fold: int) -> EffectRows:
    """All rows except those of one part."""

    def batches() -> Iterator[tuple[npt.NDArray[Any], SideColumns, npt.NDArray[Any]]]:
        for chunk in rows.chunks():
            kept = folds[chunk] != fold
            side = SideColumns(rows.side.buckets[chunk][kept], rows.side.numbers[chunk][kept])
            yield rows.codes[chunk][kept], side, rows.y[chunk][kept]

    count = int(np.count_nonzero(folds != fold))
    return EffectRows.gather(rows.names, rows.heights, rows.sizes, rows.side.numbers.shape[1], count, batches())


def _single(values: Floats) -> Tensor:
    return torch.from_numpy(values).float()
