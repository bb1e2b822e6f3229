"""Several predictive distributions as one: ensembles, MC dropout, any weighted choice between models."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ghostless.contract.distribution import LEAST_MASS
from ghostless.heads.closed_forms import bisection
from ghostless.heads.predictive import KnotPredictive, Predictive

# Members' own quantiles are exact to LEAST_MASS in their level, and bracket the pool's only with room for that.
LEVEL_SLACK = 2.0 * LEAST_MASS


@dataclass(frozen=True)
class LinearPool:
    """Draw a member with probability weights [m], then y from it: the CDF is the weighted mean of the CDFs.

    What the members disagree about, the variance of their means, is epistemic (Lakshminarayanan et al. 2017); it adds
    to what they say of themselves, so that aleatoric and epistemic are the pool's whole variance.
    A pool of calibrated members is too wide: pool uncalibrated ones, and map the pool (predictive.CalibratedReading).
    """

    members: tuple[Predictive, ...]
    weights: Tensor

    @classmethod
    def equal(cls, members: tuple[Predictive, ...]) -> "LinearPool":
        return cls(members, torch.full((len(members),), 1.0 / len(members)))

    @property
    def knots(self) -> Tensor | None:
        """[k], where all members have the same; else None."""
        first, *others = self.members
        if not isinstance(first, KnotPredictive):
            return None
        shared = all(isinstance(member, KnotPredictive) and first.knots.equal(member.knots) for member in others)
        return first.knots if shared else None

    @property
    def logit_variance(self) -> Tensor:
        return self._average(lambda member: member.logit_variance)

    def mean(self) -> Tensor:
        return self._average(lambda member: member.mean())

    def aleatoric(self) -> Tensor:
        return self._average(lambda member: member.aleatoric())

    def epistemic(self) -> Tensor:
        mean = self.mean()
        return self._average(lambda member: member.epistemic() + (member.mean() - mean).square())

    def cdf(self, y: Tensor) -> Tensor:
        """F(y) at points y [p] or [n, p] -> [n, p]."""
        return self._average(lambda member: member.cdf(y))

    def cdf_before(self, y: Tensor) -> Tensor:
        """F(y-) at points y [p] or [n, p] -> [n, p]."""
        return self._average(lambda member: member.cdf_before(y))

    def density(self, y: Tensor) -> Tensor:
        """f(y) at points y [p] or [n, p] -> [n, p]."""
        return self._average(lambda member: member.density(y))

    def quantiles(self, levels: Tensor) -> Tensor:
        """Q(u) at levels [q] -> [n, q]; it lies between the least and the largest of the members' own."""
        least = torch.stack([member.quantiles((levels - LEVEL_SLACK).clamp(min=0.0)) for member in self.members])
        largest = torch.stack([member.quantiles((levels + LEVEL_SLACK).clamp(max=1.0)) for member in self.members])
        return bisection.quantiles(self.cdf, least.amin(0), largest.amax(0), levels)

    def _average(self, part: Callable[[Predictive], Tensor]) -> Tensor:
        total = self.weights[0] * part(self.members[0])
        for weight, member in zip(self.weights[1:], self.members[1:], strict=True):
            total = total + weight * part(member)
        return total
