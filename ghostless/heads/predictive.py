"""What every head answers with."""

from typing import Protocol

import torch
from torch import Tensor

from ghostless.heads.calibration import apply_map
from ghostless.heads.closed_forms import piecewise
from ghostless.heads.closed_forms.saturation import saturated


class Predictive(Protocol):
    """A distribution per row, in target units.

    Shapes: points y [p] -> [n, p], levels [q] -> [n, q], the rest [n]. A method that can't tell what it does not know
    has an epistemic part of 0.
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
        """P(Y < y): differs from `cdf` where y is an atom."""
        ...

    def density(self, y: Tensor) -> Tensor: ...
    def quantiles(self, levels: Tensor) -> Tensor: ...


class KnotPredictive:
    """A distribution given by heights [n, k] at knots [k] (closed_forms.piecewise): everything is read from these."""

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
        """[n, k - 1]: of the segments between knots, atoms among them."""
        return self.heights.diff(dim=-1)

    def mean(self) -> Tensor:
        return piecewise.moments(self.masses, self.knots)[0]

    def variance(self) -> Tensor:
        """V [n], the sum of the aleatoric and the epistemic part."""
        return piecewise.moments(self.masses, self.knots)[1]

    def epistemic(self) -> Tensor:
        return saturated(self.last_layer_variance(), self.variance())

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
        """f(y) at points y [p] -> [n, p], constant between knots; atoms have none."""
        return piecewise.density(self.masses, self.knots, y)

    def quantiles(self, levels: Tensor) -> Tensor:
        return piecewise.quantiles(self.heights, self.knots, levels)


def read_heights(predictive: Predictive, knots: Tensor) -> Tensor:
    """Heights [n, k] at knots [k] of the distribution clipped, as the target is, to [first knot, last knot]."""
    at, before = predictive.cdf(knots[1:-1]), predictive.cdf_before(knots[1:-1])
    # Of an atom's two knots the first has F(v-); a lower end that appears twice has 0 and F(low).
    opens = knots[1:-1] == knots[2:]
    inner = torch.where(opens, before, at)
    return torch.cat([torch.zeros_like(inner[:, :1]), inner, torch.ones_like(inner[:, :1])], -1)


class CalibratedReading(KnotPredictive):
    """Any distribution read at knots and mapped (heads.calibration): a calibrated total, split as the source does."""

    def __init__(self, source: Predictive, knots: Tensor, map_heights: Tensor) -> None:
        """knots [k]; map_heights [J + 1]."""
        self._source, self._knots = source, knots
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

    def epistemic(self) -> Tensor:
        own = self._source.epistemic()
        total = own + self._source.aleatoric()
        return self.variance() * (own / total.clamp(min=torch.finfo(total.dtype).tiny))
