"""The asymmetric Laplace likelihood of QR under a Gaussian posterior: Theorem 1, Proposition 1, Corollary 1."""

import math

import torch
from torch import Tensor

from ghostless.heads.closed_forms import normal


def expected_pinball(delta: Tensor, s: Tensor, kappa: Tensor) -> Tensor:
    """E[rho_kappa(d)] for d ~ N(delta, s^2): the data term inside Theorem 1 (Eq. analytic_qr), sigma = 1.

    This is the paper's delta (kappa - 1 + Phi(delta / s)) + s phi(delta / s), rewritten as the pinball loss plus the
    contribution of the posterior's spread, to avoid cancellation for |delta| >> s.
    """
    pinball = torch.maximum(kappa * delta, (kappa - 1.0) * delta)
    return pinball + s * normal.unit_loss(delta / s)


def expected_log_likelihood(delta: Tensor, s: Tensor, kappa: Tensor, sigma: Tensor) -> Tensor:
    """Theorem 1 (Eq. analytic_qr): E[log p(d; sigma, kappa)] for d ~ N(delta, s^2)."""
    return torch.log(kappa * (1.0 - kappa) / sigma) - expected_pinball(delta, s, kappa) / sigma


def log_density(delta: Tensor, s: Tensor, kappa: Tensor, sigma: Tensor) -> Tensor:
    """Log of Proposition 1's predictive density (Eq. qr_vbll_density), a mixture of exponentially modified Gaussians.

    Finite wherever the true value is: no overflow of exp() is multiplied by an underflow of Phi().
    """
    right = _log_tilted_tail(delta, s, kappa / sigma)
    left = _log_tilted_tail(-delta, s, (1.0 - kappa) / sigma)
    high = torch.maximum(left, right)
    return torch.log(kappa * (1.0 - kappa) / sigma) + high + torch.log1p(torch.exp(-(left - right).abs()))


def density(delta: Tensor, s: Tensor, kappa: Tensor, sigma: Tensor) -> Tensor:
    """Proposition 1 (Eq. qr_vbll_density): E[p(d; sigma, kappa)] for d ~ N(delta, s^2)."""
    return torch.exp(log_density(delta, s, kappa, sigma))


def _log_tilted_tail(delta: Tensor, s: Tensor, rate: Tensor) -> Tensor:
    """log of exp(-rate delta + rate^2 s^2 / 2) Phi((delta - rate s^2) / s)."""
    z = delta / s
    u = (rate * s - z) / normal.SQRT_2
    # For u >= 0, completing the square gives exp(-z^2 / 2) erfcx(u) / 2, a product of two bounded factors. For u < 0
    # the exponent is negative and Phi is at least 1/2, so the paper's form is stable.
    outside = -0.5 * z * z + normal.log_erfcx(u.clamp(min=0.0)) - math.log(2.0)
    inside = rate * s * (0.5 * rate * s - z) + torch.log1p(-0.5 * torch.erfc((-u).clamp(min=0.0)))
    return torch.where(u >= 0.0, outside, inside)


def moments(m: Tensor, s: Tensor, kappa: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Corollary 1 (Eq. qr_mean, qr_var): mean and variance of Proposition 1's distribution around m."""
    spread = kappa * (1.0 - kappa)
    mean = m + sigma * (1.0 - 2.0 * kappa) / spread
    variance = s**2 + (sigma / spread) ** 2 * (1.0 - 2.0 * kappa + 2.0 * kappa**2)
    return mean, variance
