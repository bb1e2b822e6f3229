"""Variational Bayesian last layer for Gaussian regression (Harrison et al. 2024), as in the `vbll` package.

q(w) = N(mean, S), homoscedastic noise sigma^2 by a point estimate under a Wishart prior of its precision. The evidence
bound is exact: log N(y; m, sigma^2) - s^2 / (2 sigma^2) - KL / N.
"""

import torch
from torch import Tensor, nn

from ghostless.heads.closed_forms.normal import LOG_SQRT_2PI
from ghostless.heads.posterior import Posterior
from learning.config import ModelConfig
from research.baselines.distributions import Gaussian

# The package's defaults: scale and degrees of freedom of the Wishart prior.
WISHART_SCALE = 1e-2
WISHART_FREEDOM = 1.0


class VariationalRegressionHead(nn.Module):
    def __init__(self, config: ModelConfig, features: int) -> None:
        super().__init__()
        self.posterior = Posterior(config.posterior, features, 1, scaled=False)
        self.log_noise_sd = nn.Parameter(torch.zeros(()))

    def start_at(self, target_sample: Tensor) -> None:
        with torch.no_grad():
            self.posterior.bias.fill_(target_sample.mean())
            self.log_noise_sd.fill_(torch.log(target_sample.std()))

    def spread_parameters(self) -> list[nn.Parameter]:
        return self.posterior.covariance_parameters()

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        noise = torch.exp(2.0 * self.log_noise_sd)
        error = y - self.posterior.outputs(phi).squeeze(-1)
        misfit = error.square() + self._variance(phi)
        return 0.5 * misfit / noise + self.log_noise_sd + LOG_SQRT_2PI

    def kl(self) -> Tensor:
        """KL(q || prior) minus the log prior of the noise."""
        precision = torch.exp(-2.0 * self.log_noise_sd)
        freedom = 0.5 * (WISHART_FREEDOM + 2.0)
        return self.posterior.kl() - freedom * torch.log(precision) + 0.5 * WISHART_SCALE * precision

    def predict(self, phi: Tensor) -> Gaussian:
        location = self.posterior.outputs(phi).squeeze(-1)
        return Gaussian(location, torch.exp(2.0 * self.log_noise_sd).expand_as(location), self._variance(phi))

    def _variance(self, phi: Tensor) -> Tensor:
        variance = self.posterior.variance(phi)
        return variance.squeeze(-1) if variance.dim() == 2 else variance
