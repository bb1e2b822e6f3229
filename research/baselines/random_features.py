"""SNGP (Liu et al. 2020): a Gaussian process over phi by random Fourier features, with a Laplace covariance.

The kernel is exp(-|phi - phi'|^2 / (2 length^2)). Training finds the posterior mode of the weights; the covariance is
computed once at that mode, over all training rows, after training.
"""

import math

import torch
from torch import Tensor, nn

from ghostless.heads.bins import uniform_bins
from ghostless.heads.closed_forms import categorical
from ghostless.heads.closed_forms.normal import LOG_SQRT_2PI
from ghostless.heads.histogram import Histogram, log_frequencies, segments
from learning.config import ModelConfig
from research.baselines.distributions import Gaussian


class RandomFeatureProcess(nn.Module):
    """phi [n, D] -> h [n, R]; outputs w_k . h + bias_k with w_k ~ N(0, prior_scale^2 I)."""

    frequencies: Tensor
    phases: Tensor
    precision: Tensor
    factor: Tensor

    def __init__(self, config: ModelConfig, features: int, outputs: int) -> None:
        super().__init__()
        size = config.random_features
        self.tau = config.prior_scale
        self.register_buffer("frequencies", torch.randn(features, size) / config.length_scale)
        self.register_buffer("phases", torch.rand(size) * (2.0 * math.pi))
        self.register_buffer("precision", torch.eye(size) / self.tau**2)
        # Cholesky factor of the inverse precision.
        self.register_buffer("factor", torch.eye(size) * self.tau)
        self.weight = nn.Parameter(torch.randn(outputs, size) * 0.1)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def features(self, phi: Tensor) -> Tensor:
        """h [n, R], scaled so that h . h' approximates the kernel."""
        return torch.cos(phi @ self.frequencies + self.phases) * math.sqrt(2.0 / len(self.phases))

    def outputs(self, h: Tensor) -> Tensor:
        """m [n, K]."""
        return nn.functional.linear(h, self.weight, self.bias)

    def variance(self, h: Tensor) -> Tensor:
        """s^2 = h' precision^-1 h, [n]."""
        return (h @ self.factor).square().sum(-1)

    def negative_log_prior(self) -> Tensor:
        return 0.5 * self.weight.square().sum() / self.tau**2

    def forget(self) -> None:
        """Reset to the precision of the prior."""
        self.precision.copy_(torch.eye(len(self.precision)) / self.tau**2)

    def observe(self, h: Tensor, curvature: Tensor) -> None:
        """Add rows h [n, R] whose log likelihood has second derivative -curvature [n] in the output."""
        self.precision.add_((h * curvature.unsqueeze(-1)).T @ h)

    def settle(self) -> None:
        """Compute the covariance from the precision."""
        root = torch.linalg.cholesky(self.precision.double())
        inverse = torch.cholesky_inverse(root)
        self.factor.copy_(torch.linalg.cholesky(inverse).float())


class LaplaceHead(nn.Module):
    """The parts that regression and classification with such a process share."""

    process: RandomFeatureProcess

    def spread_parameters(self) -> list[nn.Parameter]:
        return []

    def kl(self) -> Tensor:
        return self.process.negative_log_prior()

    def curvature(self, h: Tensor) -> Tensor:
        """-d^2 log likelihood / d output^2, per row [n]."""
        raise NotImplementedError

    def observe(self, phi: Tensor) -> None:
        h = self.process.features(phi)
        self.process.observe(h, self.curvature(h))


class ProcessRegressionHead(LaplaceHead):
    """SNGP for regression: homoscedastic Gaussian noise around the process."""

    def __init__(self, config: ModelConfig, features: int) -> None:
        super().__init__()
        self.process = RandomFeatureProcess(config, features, 1)
        self.log_noise_sd = nn.Parameter(torch.zeros(()))

    def start_at(self, target_sample: Tensor) -> None:
        with torch.no_grad():
            self.process.bias.fill_(target_sample.mean())
            self.log_noise_sd.fill_(torch.log(target_sample.std()))

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        error = y - self.process.outputs(self.process.features(phi)).squeeze(-1)
        return 0.5 * error.square() * torch.exp(-2.0 * self.log_noise_sd) + self.log_noise_sd + LOG_SQRT_2PI

    def curvature(self, h: Tensor) -> Tensor:
        return torch.exp(-2.0 * self.log_noise_sd).expand(len(h))

    def predict(self, phi: Tensor) -> Gaussian:
        h = self.process.features(phi)
        location = self.process.outputs(h).squeeze(-1)
        return Gaussian(location, torch.exp(2.0 * self.log_noise_sd).expand_as(location), self.process.variance(h))


class ProcessHistogramHead(LaplaceHead):
    """CR-SNGP: logits of K bins from the process, averaged by the mean-field softmax like those of CR-VBLL."""

    edges: Tensor

    def __init__(self, config: ModelConfig, features: int, low: float, high: float) -> None:
        super().__init__()
        self.process = RandomFeatureProcess(config, features, config.bins)
        self.register_buffer("edges", torch.from_numpy(uniform_bins(low, high, config.bins).knots).float())

    def start_at(self, target_sample: Tensor) -> None:
        with torch.no_grad():
            self.process.bias.copy_(log_frequencies(segments(target_sample, self.edges), len(self.edges) - 1))

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        logits = self.process.outputs(self.process.features(phi))
        return nn.functional.cross_entropy(logits, segments(y, self.edges), reduction="none")

    def curvature(self, h: Tensor) -> Tensor:
        """p (1 - p) of the most probable bin: SNGP has one covariance for all outputs."""
        likeliest = torch.softmax(self.process.outputs(h), -1).amax(-1)
        return likeliest * (1.0 - likeliest)

    def predict(self, phi: Tensor) -> Histogram:
        h = self.process.features(phi)
        variance = self.process.variance(h)
        return Histogram(categorical.probit_softmax(self.process.outputs(h), variance), variance, self.edges)
