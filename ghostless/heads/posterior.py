"""The variational posterior of the last layer, q(w_k) = N(mean_k, a_k^2 S), and its deterministic twin."""

import math

import torch
from torch import Tensor, nn

from ghostless.heads.closed_forms import gaussian_kl
from ghostless.heads.config import PosteriorConfig

# Initial spread of the posterior, relative to the prior's standard deviation.
INITIAL_SD = 0.01


class Posterior(nn.Module):
    """Means of K outputs over D features, and a covariance in one of four forms.

    `dense` S = L L', `lowrank` S = diag(d) + U U', `diagonal` S = diag(d): one S for all outputs, so that the
    variance of every output is a_k^2 s^2 with a single s^2 = phi' S phi. `per-output` follows the paper literally, with
    one dense S_k per output: for training and comparison only, at K times the cost.
    """

    def __init__(self, config: PosteriorConfig, features: int, outputs: int, scaled: bool) -> None:
        """features: D. scaled: whether a_k is learned."""
        super().__init__()
        self.covariance = config.covariance
        self.tau = config.prior_scale
        self.mean = nn.Parameter(torch.randn(outputs, features) * (0.1 / math.sqrt(features)))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.log_scales = nn.Parameter(torch.zeros(outputs), requires_grad=scaled and config.covariance is not None)
        start = math.log(INITIAL_SD * config.prior_scale)
        if self.covariance in ("lowrank", "diagonal"):
            self.log_sd = nn.Parameter(torch.full((features,), start))
        if self.covariance == "lowrank":
            scale = math.exp(start) / math.sqrt(config.rank)
            self.learned_factor = nn.Parameter(torch.randn(features, config.rank) * scale)
        if self.covariance in ("dense", "per-output"):
            shape = (features,) if self.covariance == "dense" else (outputs, features)
            self.log_sd = nn.Parameter(torch.full(shape, start))
            self.lower = nn.Parameter(torch.zeros(*shape, features))

    def covariance_parameters(self) -> list[nn.Parameter]:
        """Parameters of S and a_k; they end far from their initial values, so they have their own learning rate."""
        names = ("log_sd", "learned_factor", "lower", "log_scales")
        present = (self._parameters.get(name) for name in names)
        return [parameter for parameter in present if parameter is not None]

    @property
    def scales(self) -> Tensor:
        """a_k [K]."""
        return torch.exp(self.log_scales)

    @property
    def shared(self) -> bool:
        """Whether all outputs share one covariance."""
        return self.covariance != "per-output"

    def diagonal(self) -> Tensor:
        """d [D] of a lowrank or diagonal S: variances."""
        return torch.exp(2.0 * self.log_sd)

    def factor(self) -> Tensor:
        """U [D, r] of a lowrank S."""
        return self.learned_factor

    def cholesky(self) -> Tensor:
        """L [D, D], or [K, D, D] per output."""
        return torch.tril(self.lower, -1) + torch.diag_embed(torch.exp(self.log_sd))

    def outputs(self, phi: Tensor) -> Tensor:
        """m [n, K] for phi [n, D]."""
        return nn.functional.linear(phi, self.mean, self.bias)

    def variance(self, phi: Tensor) -> Tensor:
        """s^2 = phi' S phi, [n]; [n, K] per output."""
        if self.covariance is None:
            return torch.zeros_like(phi[:, 0])
        if self.covariance == "dense":
            return (phi @ self.cholesky()).square().sum(-1)
        if self.covariance == "per-output":
            return torch.einsum("nd,kde->nke", phi, self.cholesky()).square().sum(-1)
        variance = phi.square() @ self.diagonal()
        if self.covariance == "lowrank":
            variance = variance + (phi @ self.factor()).square().sum(-1)
        return variance

    def kl(self) -> Tensor:
        """KL(q || N(0, tau^2 I)), summed over the outputs."""
        if self.covariance is None:
            return torch.zeros(())
        if self.covariance == "dense":
            return gaussian_kl.dense(self.mean, self.scales, self.cholesky(), self.tau)
        if self.covariance == "per-output":
            return gaussian_kl.per_output(self.mean, self.scales, self.cholesky(), self.tau)
        if self.covariance == "lowrank":
            return gaussian_kl.low_rank(self.mean, self.scales, self.diagonal(), self.factor(), self.tau)
        return gaussian_kl.diagonal(self.mean, self.scales, self.diagonal(), self.tau)

    def dense_covariance(self) -> Tensor:
        """S [D, D] of a shared posterior, for checks and for sampling."""
        if self.covariance is None:
            return torch.zeros(self.mean.shape[1], self.mean.shape[1], dtype=self.mean.dtype)
        if self.covariance == "dense":
            return self.cholesky() @ self.cholesky().T
        covariance = torch.diag(self.diagonal())
        if self.covariance == "lowrank":
            covariance = covariance + self.factor() @ self.factor().T
        return covariance
