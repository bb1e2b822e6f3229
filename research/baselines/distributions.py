"""Predictive distributions of the parametric baselines; shapes as in `learning.model.Predictive`."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special
from torch import Tensor

from ghostless.heads.closed_forms import bisection, normal


@dataclass(frozen=True)
class Gaussian:
    """N(location, noise + s2): noise is aleatoric, s2 the posterior variance of the location; all [n]."""

    location: Tensor
    noise: Tensor
    s2: Tensor

    @property
    def logit_variance(self) -> Tensor:
        return self.s2

    @property
    def sd(self) -> Tensor:
        return torch.sqrt(self.noise + self.s2)

    def mean(self) -> Tensor:
        return self.location

    def aleatoric(self) -> Tensor:
        return self.noise

    def epistemic(self) -> Tensor:
        return self.s2

    def cdf(self, y: Tensor) -> Tensor:
        return normal.cdf(self._standardised(y))

    def cdf_before(self, y: Tensor) -> Tensor:
        return self.cdf(y)

    def density(self, y: Tensor) -> Tensor:
        return normal.pdf(self._standardised(y)) / self.sd.unsqueeze(-1)

    def quantiles(self, levels: Tensor) -> Tensor:
        standard: Tensor = torch.special.ndtri(levels)
        return self.location.unsqueeze(-1) + self.sd.unsqueeze(-1) * standard

    def _standardised(self, y: Tensor) -> Tensor:
        return (y - self.location.unsqueeze(-1)) / self.sd.unsqueeze(-1)


@dataclass(frozen=True)
class GaussianMixture:
    """sum_k weights_k N(locations_k, scales_k^2), all [n, k]. It has no epistemic part."""

    weights: Tensor
    locations: Tensor
    scales: Tensor

    @property
    def logit_variance(self) -> Tensor:
        return torch.zeros_like(self.locations[:, 0])

    def mean(self) -> Tensor:
        return (self.weights * self.locations).sum(-1)

    def aleatoric(self) -> Tensor:
        deviation = self.locations - self.mean().unsqueeze(-1)
        return (self.weights * (deviation.square() + self.scales.square())).sum(-1)

    def epistemic(self) -> Tensor:
        return self.logit_variance

    def cdf(self, y: Tensor) -> Tensor:
        return (self.weights.unsqueeze(-2) * normal.cdf(self._standardised(y))).sum(-1)

    def cdf_before(self, y: Tensor) -> Tensor:
        return self.cdf(y)

    def density(self, y: Tensor) -> Tensor:
        return ((self.weights / self.scales).unsqueeze(-2) * normal.pdf(self._standardised(y))).sum(-1)

    def quantiles(self, levels: Tensor) -> Tensor:
        reach = 8.0 * self.scales
        low = (self.locations - reach).amin(-1, keepdim=True)
        high = (self.locations + reach).amax(-1, keepdim=True)
        return bisection.quantiles(self.cdf, low, high, levels)

    def _standardised(self, y: Tensor) -> Tensor:
        return (y.unsqueeze(-1) - self.locations.unsqueeze(-2)) / self.scales.unsqueeze(-2)


@dataclass(frozen=True)
class NormalInverseGamma:
    """A Gaussian whose mean and variance are NIG(location, evidence, shape, rate), all [n], shape > 1.

    Marginally y is Student's t with 2 shape degrees of freedom (Amini et al. 2020, Eq. 7)."""

    location: Tensor
    evidence: Tensor
    shape: Tensor
    rate: Tensor

    @property
    def logit_variance(self) -> Tensor:
        return self.epistemic()

    @property
    def scale(self) -> Tensor:
        return torch.sqrt(self.rate * (1.0 + self.evidence) / (self.evidence * self.shape))

    def mean(self) -> Tensor:
        return self.location

    def aleatoric(self) -> Tensor:
        """E[sigma^2]."""
        return self.rate / (self.shape - 1.0)

    def epistemic(self) -> Tensor:
        """Var[mu]."""
        return self.rate / (self.evidence * (self.shape - 1.0))

    def cdf(self, y: Tensor) -> Tensor:
        freedom = 2.0 * self.shape.unsqueeze(-1).numpy()
        return torch.from_numpy(special.stdtr(freedom, self._standardised(y).numpy()).astype(np.float32))

    def cdf_before(self, y: Tensor) -> Tensor:
        return self.cdf(y)

    def density(self, y: Tensor) -> Tensor:
        log_density = student_log_density(self._standardised(y), 2.0 * self.shape.unsqueeze(-1))
        return torch.exp(log_density) / self.scale.unsqueeze(-1)

    def quantiles(self, levels: Tensor) -> Tensor:
        standard = special.stdtrit(2.0 * self.shape.unsqueeze(-1).numpy(), levels.numpy()).astype(np.float32)
        return self.location.unsqueeze(-1) + self.scale.unsqueeze(-1) * torch.from_numpy(standard)

    def _standardised(self, y: Tensor) -> Tensor:
        return (y - self.location.unsqueeze(-1)) / self.scale.unsqueeze(-1)


def student_log_density(t: Tensor, freedom: Tensor) -> Tensor:
    """log density of Student's t with `freedom` degrees of freedom; broadcasts."""
    half = 0.5 * (freedom + 1.0)
    constant = torch.lgamma(half) - torch.lgamma(0.5 * freedom) - 0.5 * torch.log(math.pi * freedom)
    return constant - half * torch.log1p(t.square() / freedom)
