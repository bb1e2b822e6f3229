"""QR: conditional quantiles with a Variational Bayesian Last Layer."""

import torch
from torch import Tensor, nn

from ghostless.heads.closed_forms import laplace
from ghostless.heads.closed_forms.quantile_mixture import QuantileMixture
from ghostless.heads.config import PosteriorConfig, QuantileConfig
from ghostless.heads.posterior import Posterior


def midpoint_levels(count: int) -> Tensor:
    """kappa_j = (j + 1/2) / K, [K]."""
    return (torch.arange(count, dtype=torch.float64) + 0.5).div(count).float()


class QuantileHead(nn.Module):
    """QR: K conditional quantiles, trained by Theorem 1, read as a Gaussian mixture."""

    levels: Tensor

    def __init__(
        self, config: QuantileConfig, posterior: PosteriorConfig, features: int, novelty_columns: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("levels", midpoint_levels(config.levels))
        self.posterior = Posterior(posterior, features, novelty_columns, config.levels, scaled=True)

    def start_at(self, target_sample: Tensor) -> None:
        """Biases at the training marginal's quantiles: the first step already knows the histogram."""
        with torch.no_grad():
            self.posterior.bias.copy_(torch.quantile(target_sample.double(), self.levels.double()).float())

    def spread_parameters(self) -> list[nn.Parameter]:
        return self.posterior.covariance_parameters()

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        """Expected pinball loss averaged over levels, per row [n]: Theorem 1 but for its constant."""
        delta = y.unsqueeze(-1) - self.posterior.outputs(phi)
        if self.posterior.covariance is None:
            return torch.maximum(self.levels * delta, (self.levels - 1.0) * delta).mean(-1)
        variance = self.posterior.variance(phi)
        s = torch.sqrt(variance if variance.dim() == 2 else variance.unsqueeze(-1)) * self.posterior.scales
        return laplace.expected_pinball(delta, s, self.levels).mean(-1)

    def kl(self) -> Tensor:
        """On the scale of `loss`: Theorem 1 divides the data term by sigma, and `loss` averages over levels."""
        return self.posterior.kl() * (self.config.sigma / self.config.levels)

    def predict(self, phi: Tensor) -> QuantileMixture:
        return self.read(self.posterior.outputs(phi), phi)

    def read(self, m: Tensor, phi: Tensor) -> QuantileMixture:
        """Quantiles m [n, K] as a distribution, with the posterior's variance at phi [n, D]."""
        variance = self.posterior.variance(phi)
        if variance.dim() == 2:
            variance = variance.mean(-1)
        return QuantileMixture.from_levels(
            m, variance, self.posterior.scales, self.config.groups, self.config.bandwidth
        )
