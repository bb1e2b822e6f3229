"""Heads whose outputs are the parameters of a density: Gaussian, mixture density network, evidential regression.

Each consists of a linear map of phi (a `Posterior` without covariance, as in the vanilla QR and CR heads) and a
likelihood. Biases start at the training marginal, as for those heads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ghostless.heads.closed_forms.normal import LOG_SQRT_2PI
from ghostless.heads.posterior import Posterior
from learning.config import ModelConfig
from research.baselines.distributions import Gaussian, GaussianMixture, NormalInverseGamma, student_log_density

# Minimum width of a density, as a fraction of the target's range. Without it, a spike on one of the target's atoms (0 s
# watched, the clipped end) has an unbounded likelihood, and training never recovers.
NARROWEST = 1e-3


class ParametricHead(nn.Module):
    """A linear map of phi to `outputs` parameters."""

    def __init__(self, config: ModelConfig, features: int, outputs: int, span: float) -> None:
        """span: width of the target's range."""
        super().__init__()
        self.posterior = Posterior(config.posterior, features, outputs, scaled=False)
        self.floor = NARROWEST * span

    def spread_parameters(self) -> list[nn.Parameter]:
        return []

    def kl(self) -> Tensor:
        return torch.zeros(())

    def _set_biases(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            self.posterior.bias.copy_(torch.stack(values).flatten())


class GaussianHead(ParametricHead):
    """Heteroscedastic regression: mean and log standard deviation, by maximum likelihood."""

    def __init__(self, config: ModelConfig, features: int, span: float) -> None:
        super().__init__(config, features, 2, span)

    def start_at(self, target_sample: Tensor) -> None:
        self._set_biases([target_sample.mean(), torch.log(target_sample.std())])

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        location, sd = self._parameters_of(phi)
        return 0.5 * ((y - location) / sd).square() + torch.log(sd) + LOG_SQRT_2PI

    def predict(self, phi: Tensor) -> Gaussian:
        location, sd = self._parameters_of(phi)
        return Gaussian(location, sd.square(), torch.zeros_like(location))

    def _parameters_of(self, phi: Tensor) -> tuple[Tensor, Tensor]:
        location, log_sd = self.posterior.outputs(phi).unbind(-1)
        return location, torch.exp(log_sd) + self.floor


class MixtureDensityHead(ParametricHead):
    """Mixture density network (Bishop 1994): weights, means and standard deviations of k Gaussians."""

    def __init__(self, config: ModelConfig, features: int, span: float) -> None:
        super().__init__(config, features, 3 * config.components, span)
        self.components = config.components

    def start_at(self, target_sample: Tensor) -> None:
        """Place the components at the marginal's quantiles, each as wide as its part of the marginal."""
        levels = (torch.arange(self.components) + 0.5) / self.components
        locations = torch.quantile(target_sample.double(), levels.double()).float()
        width = torch.log(target_sample.std() / self.components).expand(self.components)
        self._set_biases([torch.zeros(self.components), locations, width])

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        log_weights, locations, scales = self._parameters_of(phi)
        z = (y.unsqueeze(-1) - locations) / scales
        return LOG_SQRT_2PI - torch.logsumexp(log_weights - 0.5 * z.square() - torch.log(scales), -1)

    def predict(self, phi: Tensor) -> GaussianMixture:
        log_weights, locations, scales = self._parameters_of(phi)
        return GaussianMixture(torch.exp(log_weights), locations, scales)

    def _parameters_of(self, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, locations, log_scales = self.posterior.outputs(phi).unflatten(-1, (3, -1)).unbind(-2)
        return torch.log_softmax(logits, -1), locations, torch.exp(log_scales) + self.floor


class EvidentialHead(ParametricHead):
    """Deep evidential regression (Amini et al. 2020): the four parameters of a normal-inverse-gamma prior."""

    def __init__(self, config: ModelConfig, features: int, span: float) -> None:
        super().__init__(config, features, 4, span)
        self.weight = config.evidence_weight

    def start_at(self, target_sample: Tensor) -> None:
        """Shape 2 and evidence 1, so the rate is the marginal's variance E[sigma^2]."""
        one = torch.tensor(math.log(math.e - 1.0))  # softplus of it is 1
        variance = target_sample.var()
        self._set_biases([target_sample.mean(), one, one, variance + torch.log(-torch.expm1(-variance))])

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        """Negative log marginal likelihood (their Eq. 8) + weight |y - location| (2 evidence + shape) (Eq. 9)."""
        prior = self.predict(phi)
        error = y - prior.location
        fit = student_log_density(error / prior.scale, 2.0 * prior.shape) - torch.log(prior.scale)
        return self.weight * error.abs() * (2.0 * prior.evidence + prior.shape) - fit

    def predict(self, phi: Tensor) -> NormalInverseGamma:
        location, evidence, shape, rate = self.posterior.outputs(phi).unbind(-1)
        return NormalInverseGamma(
            location,
            softplus(evidence) + self.floor,
            1.0 + softplus(shape) + self.floor,
            softplus(rate) + self.floor**2,
        )
