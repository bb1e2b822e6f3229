"""The predictive distributions that heads return."""

from typing import Protocol

import torch
from torch import Tensor

from ghostless.heads.calibration import apply_map
from ghostless.heads.closed_forms import piecewise
from ghostless.heads.closed_forms.saturation import saturated
from ghostless.heads.effect_variance import RowEffects


class Predictive(Protocol):
    """A distribution per row, in target units.

    Shapes: points y [p] -> [n, p], levels [q] -> [n, q], the rest [n]. A method without epistemic uncertainty has an
    epistemic part of 0.
    """

    @property
    def logit_variance(self) -> Tensor: ...
    def mean(self) -> Tensor: ...
    def aleatoric(self) -> Tensor: ...
    def epistemic(self) -> Tensor: ...

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y)."""
        ...

    def cdf_before(self, y: Tensor) -> Tensor:
        """P(Y < y): differs from `cdf` if y is an atom."""
        ...

    def density(self, y: Tensor) -> Tensor: ...
    def quantiles(self, levels: Tensor) -> Tensor: ...


class KnotPredictive:
    """A distribution given by heights [n, k] at knots [k] (closed_forms.piecewise), from which everything is computed.

    effects: variance of the rows' effects. If it is None, the epistemic variance is that of the last layer alone.
    """

    effects: RowEffects | None

    @property
    def knots(self) -> Tensor:
        raise NotImplementedError

    @property
    def heights(self) -> Tensor:
        raise NotImplementedError

    @property
    def logit_variance(self) -> Tensor:
        raise NotImplementedError

    def last_layer_variance(self) -> Tensor:
        """l [n]: the variance of E[y | w] under the last layer's posterior, to first order, in target units squared."""
        raise NotImplementedError

    @property
    def masses(self) -> Tensor:
        """Masses [n, k - 1] of the segments between knots, including atoms."""
        return self.heights.diff(dim=-1)

    def mean(self) -> Tensor:
        return piecewise.moments(self.masses, self.knots)[0]

    def variance(self) -> Tensor:
        """V [n], the sum of the aleatoric and the epistemic part."""
        return piecewise.moments(self.masses, self.knots)[1]

    def epistemic(self) -> Tensor:
        """Epistemic variance [n], from the effects of the ids and from the last layer (closed_forms.split)."""
        total, last_layer = self.variance(), self.last_layer_variance()
        return saturated(last_layer, total) if self.effects is None else self.effects.epistemic(total, last_layer)

    def epistemic_candidate(self) -> Tensor:
        """The same without the part that all candidates of a request share [n]."""
        total, last_layer = self.variance(), self.last_layer_variance()
        if self.effects is None:
            return saturated(last_layer, total)
        return self.effects.epistemic_candidate(total, last_layer)

    def aleatoric(self) -> Tensor:
        return self.variance() - self.epistemic()

    def entropy(self) -> Tensor:
        """-sum p log p over the segments [n], in nats; it depends on the knots."""
        terms: Tensor = torch.special.xlogy(self.masses, self.masses)
        return -terms.sum(-1)

    def cdf(self, y: Tensor) -> Tensor:
        return piecewise.interpolate(self.heights, self.knots, y)

    def cdf_before(self, y: Tensor) -> Tensor:
        return piecewise.interpolate(self.heights, self.knots, y, before=True)

    def density(self, y: Tensor) -> Tensor:
        """f(y) at points y [p] -> [n, p], constant between knots; atoms have no density."""
        return piecewise.density(self.masses, self.knots, y)

    def quantiles(self, levels: Tensor) -> Tensor:
        return piecewise.quantiles(self.heights, self.knots, levels)


def read_heights(predictive: Predictive, knots: Tensor) -> Tensor:
    """Heights [n, k] at knots [k] of the distribution clipped to [first knot, last knot], as the target is."""
    at, before = predictive.cdf(knots[1:-1]), predictive.cdf_before(knots[1:-1])
    # The first of an atom's two knots has height F(v-). A lower end that appears twice has heights 0 and F(low).
    opens = knots[1:-1] == knots[2:]
    inner = torch.where(opens, before, at)
    return torch.cat([torch.zeros_like(inner[:, :1]), inner, torch.ones_like(inner[:, :1])], -1)


class CalibratedReading(KnotPredictive):
    """Any distribution read at knots and calibrated by a map (heads.calibration). The variance without the effects is
    split in the same ratio as the variance of the source."""

    def __init__(
        self, source: Predictive, knots: Tensor, map_heights: Tensor, effects: RowEffects | None = None
    ) -> None:
        """knots [k]; map_heights [J + 1]."""
        self._source, self._knots, self.effects = source, knots, effects
        self._heights = apply_map(read_heights(source, knots), map_heights)

    @property
    def knots(self) -> Tensor:
        return self._knots

    @property
    def heights(self) -> Tensor:
        return self._heights

    @property
    def logit_variance(self) -> Tensor:
        return self._source.logit_variance

    def last_layer_variance(self) -> Tensor:
        """The source's epistemic share of the calibrated variance [n]."""
        return self.variance() * self._share()

    def epistemic(self) -> Tensor:
        return self._split(None if self.effects is None else self.effects.shared(self.variance()))

    def epistemic_candidate(self) -> Tensor:
        return self._split(None if self.effects is None else self.effects.shared_by_candidate(self.variance()))

    def _split(self, shared: Tensor | None) -> Tensor:
        total = self.variance()
        return total * self._share() if shared is None else shared + (total - shared) * self._share()

    def _share(self) -> Tensor:
        own = self._source.epistemic()
        total = own + self._source.aleatoric()
        return own / total.clamp(min=torch.finfo(total.dtype).tiny)
