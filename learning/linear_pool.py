"""Combines several predictive distributions into one: ensembles, MC dropout, weighted pools of models."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ghostless.contract.distribution import LEAST_MASS
from ghostless.heads.closed_forms import bisection
from ghostless.heads.predictive import KnotPredictive, Predictive

# The members' quantiles are exact up to LEAST_MASS in their level, so they bracket the pool's quantile only with this
# slack.
LEVEL_SLACK = 2.0 * LEAST_MASS


@dataclass(frozen=True)
class LinearPool:
    """Draw a member with probability weights [m], then y from it: the CDF is the weighted mean of the CDFs.

    The variance of the members' means is epistemic (Lakshminarayanan et al. 2017). It is added to the members' own
    epistemic variance, so that aleatoric and epistemic add up to the pool's variance. A pool of calibrated members is
    too wide: pool uncalibrated ones and calibrate the pool (predictive.CalibratedReading).
    """

    members: tuple[Predictive, ...]
    weights: Tensor

    @classmethod
    def equal(cls, members: tuple[Predictive, ...]) -> "LinearPool":
        return cls(members, torch.full((len(members),), 1.0 / len(members)))

    @property
    def knots(self) -> Tensor | None:
        """Knots [k] if all members have the same knots, else None."""
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
        """Q(u) at levels [q] -> [n, q]; it is between the smallest and the largest of the members' quantiles."""
        least = torch.stack([member.quantiles((levels - LEVEL_SLACK).clamp(min=0.0)) for member in self.members])
        largest = torch.stack([member.quantiles((levels + LEVEL_SLACK).clamp(max=1.0)) for member in self.members])
        return bisection.quantiles(self.cdf, least.amin(0), largest.amax(0), levels)

    def _average(self, part: Callable[[Predictive], Tensor]) -> Tensor:
        total = self.weights[0] * part(self.members[0])
        for weight, member in zip(self.weights[1:], self.members[1:], strict=True):
            total = total + weight * part(member)
        return total
