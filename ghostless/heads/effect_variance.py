"""The part of fitted effects that a served model needs: the variance of the effects, for each row of the ids' tables.

Everything is a column of an id's table, so that a graph reads it together with the id's embedding:

    crossed feature   v
    nested feature    v, and carried = (v / t^2)^2: Var(chain) = v + carried * Var(above)
    pair of rank r    left [rows of u, 2 m] and right [rows of v, 2 m], whose product summed over 2 m is
                      qt' C_u qt + pt' C_v pt + tr(C_u^ff C_v^ff),  qt = [1, q_v], pt = [1, p_u];
                      the second term, the variance if u is known, is the sum over the last m
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ghostless.heads.closed_forms import split
from ghostless.heads.effects import Codes, Effects, Floats, Ints
from ghostless.heads.factors import Factors


@dataclass(frozen=True)
class RowEffects:
    """Variances of the effects of n rows, in target units squared.

    raw [n]: variance of all effects. candidate [n]: variance of the effects that differ between the candidates of a
    request. level: Nbar. gamma: 1 if the uncertainty about effects scales with a row's noise, else 0.
    """

    raw: Tensor
    candidate: Tensor
    level: float
    gamma: int

    def shared(self, total: Tensor) -> Tensor:
        """rho V for V [n]."""
        return split.effects_part(total, self.raw, self.level, self.gamma)

    def shared_by_candidate(self, total: Tensor) -> Tensor:
        """The same without the effects that all candidates of a request share."""
        return split.effects_part(total, self.raw, self.level, self.gamma, self.candidate)

    def epistemic(self, total: Tensor, last_layer: Tensor) -> Tensor:
        """Epistemic variance [n] for V and l, [n] each."""
        return split.epistemic_variance(total, self.shared(total), last_layer)

    def epistemic_candidate(self, total: Tensor, last_layer: Tensor) -> Tensor:
        return split.epistemic_variance(total, self.shared_by_candidate(total), last_layer)


@dataclass(frozen=True)
class EffectVariance:
    """Computes the variance of effects from the tables of the ids.

    effects: the effects of all id features. context: features that all candidates of a request share. factors: joint
    effects of two features, which replace the effects of these features; effects above them in a chain remain. level,
    gamma: as in RowEffects.
    """

    effects: Effects
    context: frozenset[str] = frozenset()
    factors: Factors | None = None
    level: float = 1.0
    gamma: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return self.effects.names

    @property
    def parents(self) -> Mapping[str, str]:
        return self.effects.parents

    @property
    def pair(self) -> tuple[str, str] | None:
        return None if self.factors is None else self.factors.pair

    @property
    def rank(self) -> int:
        return 0 if self.factors is None else self.factors.rank

    @property
    def noise(self) -> float:
        """sigma^2."""
        return self.effects.noise if self.factors is None else self.factors.noise

    def variance(self, name: str) -> Tensor:
        """v_f [rows], given the effect of the parent if there is one; 0 for the features of `pair`."""
        return self._tables[name]

    def carried(self, name: str) -> Tensor:
        """(v_f / t_f^2)^2 [rows] of a nested feature."""
        return self._carried[name]

    def left(self) -> Tensor:
        """[rows of the pair's first feature, 2 m]; the first half has the terms with the variance of this feature."""
        return self._columns[0]

    def right(self) -> Tensor:
        """[rows of the pair's second feature, 2 m]."""
        return self._columns[1]

    @cached_property
    def _tables(self) -> dict[str, Tensor]:
        tables = {name: _single(values) for name, values in self.effects.variance.items()}
        return tables | {name: torch.zeros_like(tables[name]) for name in self.pair or ()}

    @cached_property
    def _carried(self) -> dict[str, Tensor]:
        return {name: _single(self.effects.carried(name)) for name in self.parents}

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor]:
        assert self.factors is not None
        return _single(self.factors.left()), _single(self.factors.right())

    def __call__(self, batch: Mapping[str, Tensor]) -> RowEffects:
        """The effects of rows, given by the table rows [n] of every id feature."""
        every = frozenset(self.names)
        return RowEffects(
            self._variance_of(batch, every), self._variance_of(batch, every - self.context), self.level, self.gamma
        )

    def _variance_of(self, batch: Mapping[str, Tensor], chosen: frozenset[str]) -> Tensor:
        """Var(sum of the effects of `chosen`) [n]. Other features are treated as known."""
        parents = set(self.parents.values())
        ends = [name for name in self.names if name not in parents]
        total = torch.stack([self._chain(name, batch, chosen) for name in ends]).sum(0)
        if self.pair is None:
            return total
        first, second = self.pair
        product = self.left()[batch[first]] * self.right()[batch[second]]
        known = 0 if first in chosen else product.shape[1] // 2
        return total + product[:, known:].sum(-1)

    def _chain(self, name: str, batch: Mapping[str, Tensor], chosen: frozenset[str]) -> Tensor:
        rows = batch[name]
        own = self._tables[name][rows] if name in chosen else self._tables[name].new_zeros(len(rows))
        parent = self.parents.get(name)
        if parent is None:
            return own
        share = self._carried[name][rows] if name in chosen else 1.0
        return own + share * self._chain(parent, batch, chosen)

    def roots(self, codes: Codes, name: str) -> Floats:
        """Roots [n, k]: rows i and j that share only the id of `name` have covariance root_i . root_j.

        Features below it in a chain reduce it: v_f is multiplied by `carried` of all of them.
        """
        if self.factors is not None and name in self.factors.pair:
            root = self.factors.roots(codes, name)
        else:
            root = np.sqrt(np.maximum(self.effects.variance[name][codes[name]], 0.0))[:, None]
        for child in self.effects.below(name):
            root = root * np.sqrt(self.effects.carried(child)[codes[child]])[:, None]
        return root

    def scale(self, codes: Codes, total: Floats) -> Floats:
        """rho V / e [n] of rows with variance V [n]. The covariance of two rows is multiplied by the square root of
        each row's value."""
        if not self.gamma:
            return np.ones(len(total))
        raw = self(_rows(codes)).raw.double().numpy()
        scale: Floats = np.maximum(total, 0.0) / (raw + self.level)
        return scale

    def levelled(self, codes: Codes, total: Floats) -> "EffectVariance":
        """A copy with the level computed from held-out rows with variance V [n]."""
        raw = self(_rows(codes)).raw.double()
        return replace(self, level=split.noise_level(torch.from_numpy(total).double(), raw))

    def informed(self, name: str, information: tuple[float, ...]) -> "EffectVariance":
        """A copy with the variances as if every row carried this many times as much information about the effect of
        `name`; for a feature with factors, there is one number for its intercept and one for its factors."""
        if self.factors is not None and name in self.factors.pair:
            intercept, factors = information
            return replace(self, factors=self.factors.informed(name, (intercept, factors)))
        (own,) = information
        return replace(self, effects=self.effects.informed(name, own))

    def at(self, rows: Mapping[str, Ints]) -> "EffectVariance":
        """A copy with only these rows [k] of every table, in this order; the first must be row 0, the unknown id."""
        factors = None if self.factors is None else self.factors.at(rows)
        return replace(self, effects=self.effects.at(rows), factors=factors)

    def state(self) -> dict[str, Any]:
        """Plain values and tensors, for a checkpoint."""
        effects, factors = self.effects, self.factors
        state: dict[str, Any] = {
            "mean": _tensors(effects.mean),
            "variance": _tensors(effects.variance),
            "priors": dict(effects.priors),
            "parents": dict(effects.parents),
            "noise": effects.noise,
            "side": torch.from_numpy(effects.side),
            "context": sorted(self.context),
            "level": self.level,
            "gamma": self.gamma,
        }
        if factors is not None:
            state["factors"] = {
                "pair": list(factors.pair),
                "means": [torch.from_numpy(mean) for mean in factors.means],
                "covariances": [torch.from_numpy(covariance) for covariance in factors.covariances],
                "noise": factors.noise,
                "inflation": factors.inflation,
            }
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "EffectVariance":
        """The inverse of `state`."""
        found = state.get("factors")
        factors = None
        if found is not None:
            first, second = found["pair"]
            means, covariances = ([part.numpy() for part in found[name]] for name in ("means", "covariances"))
            factors = Factors(
                (first, second),
                (means[0], means[1]),
                (covariances[0], covariances[1]),
                float(found["noise"]),
                float(found["inflation"]),
            )
        effects = Effects(
            mean={name: values.numpy() for name, values in state["mean"].items()},
            variance={name: values.numpy() for name, values in state["variance"].items()},
            priors=dict(state["priors"]),
            parents=dict(state["parents"]),
            noise=float(state["noise"]),
            side=state["side"].numpy(),
        )
        return cls(effects, frozenset(state["context"]), factors, float(state["level"]), int(state["gamma"]))


def _rows(codes: Codes) -> dict[str, Tensor]:
    return {name: torch.from_numpy(rows.astype(np.int64)) for name, rows in codes.items()}


def _single(values: Floats) -> Tensor:
    return torch.from_numpy(values).float()


def _tensors(arrays: Mapping[str, Floats]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values) for name, values in arrays.items()}
