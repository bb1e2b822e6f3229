"""The standard normal distribution, without overflow or cancellation, and exportable to ONNX."""

import math

import torch
from torch import Tensor

SQRT_2 = math.sqrt(2.0)
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)

# Chebyshev coefficients of log(erfcx(z) / t), t = 2 / (2 + z) for z >= 0; relative error below 1.2e-7
# (W. J. Cody's rational form is not more accurate in float32, and torch's erfcx has no ONNX equivalent).
ERFCX = (
    -1.26551223,
    1.00002368,
    0.37409196,
    0.09678418,
    -0.18628806,
    0.27886807,
    -1.13520398,
    1.48851587,
    -0.82215223,
    0.17087277,
)


def pdf(z: Tensor) -> Tensor:
    """phi(z)."""
    return torch.exp(-0.5 * z * z - LOG_SQRT_2PI)


def cdf(z: Tensor) -> Tensor:
    """Phi(z)."""
    return 0.5 * torch.erfc(-z / SQRT_2)


def log_erfcx(z: Tensor) -> Tensor:
    """log of the scaled complementary error function exp(z^2) erfc(z), for z >= 0."""
    t = 2.0 / (2.0 + z)
    polynomial = torch.full_like(t, ERFCX[-1])
    for coefficient in reversed(ERFCX[:-1]):
        polynomial = polynomial * t + coefficient
    return torch.log(t) + polynomial


def unit_loss(z: Tensor) -> Tensor:
    """phi(z) - |z| Phi(-|z|): the amount that smoothing by a unit normal adds to |z| / 2. Positive, decays like phi(z)
    / z^2."""
    distance = z.abs()
    return pdf(z) - distance * cdf(-distance)
