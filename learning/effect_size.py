"""Scales the variance of effects to the network's error, with pairs of rows that were not used for fitting.

The variances of effects are those of a least squares fit, v = 1 / (1 / t^2 + n / sigma^2). A network may learn more or
less from a row: v = 1 / (1 / t^2 + b n / sigma^2) with a number b for each id feature, and one for its factors. For
held-out rows i, j that share an id, the product of residuals r_i r_j has the mean c_ij(b), the served covariance, and a
variance of about V_i V_j, times (1 + m)^2 for an id whose rows share m times their own variance. So b minimises

    sum over ids 1 / (1 + m)^2 sum over pairs ((r_i r_j - c_ij(b))^2 - (r_i r_j)^2) / (V_i V_j) + (log b / SPREAD)^2

where the last term is a prior: the closed form is approximately right. gamma is the value with the smaller sum, over
pairs with known ids and pairs with the id treated as unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ghostless.contract.pair_test import Floats, Groups
from ghostless.heads.effect_variance import EffectVariance
from learning.data.encoding import OUT_OF_VOCABULARY, Encoding
from learning.data.table import Table
from learning.id_effects import Predicted, predicted, with_below
from learning.model import Predict

# SPREAD for the b of effects, and for the b of factors. It is larger for factors, because their variances are
# approximate, and because a network may not have learned what the factors found.
SPREADS = (0.2, 0.7)
# Values of log2 b that are tried; the result is refined by a parabola through the best one and its neighbours.
_OCTAVES = np.arange(-3.0, 3.01, 0.5)
# Number of passes over all numbers b, each optimised given the others.
_SWEEPS = 2

Information = dict[str, list[float]]


@torch.no_grad()
def settle(effects: EffectVariance, predict: Predict, encoding: Encoding, held_out: Table | None) -> EffectVariance:
    """The effects with sizes, level and gamma fitted to held-out rows, whose calibrated distributions come from
    `predict`. Without such rows gamma is 0, which needs no level: the epistemic variance is then that of the effects,
    regardless of a row's noise."""
    if held_out is None or not held_out.rows:
        return replace(effects, gamma=0)
    plain = predicted(predict, encoding, held_out)
    masked = [predicted(predict, encoding, held_out, with_below(effects, name)) for name in effects.names]
    start = replace(effects, gamma=1).levelled(plain.codes, plain.total)
    pairs = [SharedPairs.of(plain, name, start) for name in effects.names]
    unknown = [SharedPairs.of(rows, name, start) for rows, name in zip(masked, effects.names, strict=True)]
    found = [sized(replace(effects, gamma=gamma), pairs) for gamma in (1, 0)]
    misfits = [sum(part.misfit(candidate) for part in (*pairs, *unknown)) for candidate in found]
    return found[int(misfits[1] < misfits[0])]


@dataclass(frozen=True)
class SharedPairs:
    """Pairs of held-out rows that share an id of `name`, without those that agree in every id. weights [ids]."""

    rows: Predicted
    name: str
    weights: Floats
    groups: Groups
    same: Groups | None
    within: Mapping[str, Groups]

    @classmethod
    def of(cls, rows: Predicted, name: str, effects: EffectVariance) -> "SharedPairs":
        """effects: used for the weights of ids, which must be the same in all sums that are compared."""
        groups = Groups.by(rows.ids[name])
        own = (rows.scaled_roots(effects, name) ** 2).sum(1) / np.maximum(rows.total, np.finfo(np.float64).tiny)
        weights: Floats = 1.0 / (1.0 + np.bincount(groups.of_row, own, groups.count).astype(np.float64)) ** 2
        others = [other for other in rows.ids if other != name]
        same = Groups.by(groups.of_row, *(rows.ids[other] for other in others)) if others else None
        # With two id features, pairs that share both ids are left out.
        within = {other: Groups.by(groups.of_row, rows.ids[other]) for other in others if len(others) > 1}
        return cls(rows, name, weights, groups, same, within)

    def misfit(self, effects: EffectVariance) -> float:
        """The sum over ids in the formula of this module, without the prior term; lower is better."""
        total = np.maximum(self.rows.total, np.finfo(np.float64).tiny)[:, None]
        roots = self.rows.scaled_roots(effects, self.name)
        sums = self._sums(self.groups, _outer(roots, roots) / total)
        sums -= 2.0 * self._sums(self.groups, roots * (self.rows.residual[:, None] / total))
        for other, groups in self.within.items():
            sums += 2.0 * self._sums(groups, _outer(roots, self.rows.scaled_roots(effects, other)) / total)
        return float(self.weights @ sums)

    def _sums(self, within: Groups, values: Floats) -> Floats:
        total = within.pair_sums_in(self.groups, values)
        return total if self.same is None else total - self.same.pair_sums_in(self.groups, values)


def sized(effects: EffectVariance, pairs: Sequence[SharedPairs]) -> EffectVariance:
    """The effects with the fitted b of every feature, and with the level that follows from them. pairs: the pairs of
    every feature; all must be of the same rows."""
    rows = pairs[0].rows
    # Only ids with held-out rows are needed, so the tables are short.
    used = {name: np.unique(np.append(codes, OUT_OF_VOCABULARY)) for name, codes in rows.codes.items()}
    codes = {name: np.searchsorted(used[name], codes) for name, codes in rows.codes.items()}
    short = [replace(part, rows=replace(rows, codes=codes)) for part in pairs]
    small = effects.at(used).levelled(codes, rows.total)
    information: Information = {
        name: [1.0, 1.0] if effects.pair is not None and name in effects.pair else [1.0] for name in effects.names
    }
    for _ in range(_SWEEPS):
        for part in short:
            for place in range(len(information[part.name])):
                level = _informed(small, information).levelled(codes, rows.total).level
                information = _improved(replace(small, level=level), part, information, place)
    return _informed(effects, information).levelled(rows.codes, rows.total)


def _improved(effects: EffectVariance, pairs: SharedPairs, information: Information, place: int) -> Information:
    """`information` with the best value of one b, given the others: the one at `place` of the feature of `pairs`."""

    def changed(octaves: float) -> Information:
        own = list(information[pairs.name])
        own[place] = 2.0**octaves
        return {**information, pairs.name: own}

    beliefs = (_OCTAVES * np.log(2.0) / SPREADS[place]) ** 2
    misfits = [pairs.misfit(_informed(effects, changed(octaves))) for octaves in _OCTAVES] + beliefs
    best = int(np.clip(np.argmin(misfits), 1, len(misfits) - 2))
    before, least, after = misfits[best - 1 : best + 2]
    bend = before - 2.0 * least + after
    off = float(np.clip(0.5 * (before - after) / bend, -1.0, 1.0)) if bend > 0 else 0.0
    return changed(float(_OCTAVES[best]) + off * float(_OCTAVES[1] - _OCTAVES[0]))


def _informed(effects: EffectVariance, information: Information) -> EffectVariance:
    for name, numbers in information.items():
        effects = effects.informed(name, tuple(numbers))
    return effects


def _outer(left: Floats, right: Floats) -> Floats:
    """Outer products [n, k l] of roots [n, k] and [n, l]. The scalar product of two of their rows is the product of
    both covariances."""
    outer: Floats = (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)
    return outer
