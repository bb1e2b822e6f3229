"""Independent values of the paper's integrals: scipy's quadrature, float64, one point at a time.

Nothing here shares code or algebra with ghostless.heads.closed_forms. The integrands are the definitions, likelihood
times posterior, with the peak factored out so that quadrature finds it at any scale.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy import integrate

# exp(-FAR^2 / 2) is below float64's smallest number, so nothing beyond it contributes.
FAR = 40.0


def expected_pinball(delta: float, s: float, kappa: float) -> float:
    """E[rho_kappa(d)], d ~ N(delta, s^2), in units that keep the integrand near 1."""
    unit = max(abs(delta), s)

    def integrand(z: float) -> float:
        d = (delta + s * z) / unit
        return max(kappa * d, (kappa - 1.0) * d) * math.exp(-0.5 * z * z)

    return unit * _integral(integrand, _cuts(-delta / s, -FAR, FAR)) / math.sqrt(2.0 * math.pi)


def log_density(delta: float, s: float, kappa: float, sigma: float) -> float:
    """log E[p(d; sigma, kappa)], d ~ N(delta, s^2), p the asymmetric Laplace density."""
    right = _log_half_line(-delta / s, kappa * s / sigma)
    left = _log_half_line(delta / s, (1.0 - kappa) * s / sigma)
    return math.log(kappa * (1.0 - kappa) / sigma) - 0.5 * math.log(2.0 * math.pi) + float(np.logaddexp(left, right))


def _log_half_line(start: float, slope: float) -> float:
    """log of the integral of exp(-slope (z - start) - z^2 / 2) over z > start."""
    peak = max(start, -slope)
    # The exponent at peak + z minus the exponent at the peak is -steepness z - z^2 / 2.
    steepness = slope + peak
    width = 1.0 / max(1.0, steepness)

    def integrand(t: float) -> float:
        return math.exp(-steepness * width * t - 0.5 * (width * t) ** 2)

    area = width * _integral(integrand, _cuts(0.0, max((start - peak) / width, -FAR), FAR))
    # slope (peak - start), without cancellation if the peak is at the start.
    climb = slope * (peak - start) if peak > start else 0.0
    return math.log(area) - climb - 0.5 * peak * peak


def laplace_moments(kappa: float, sigma: float) -> tuple[float, float]:
    """Mean and variance of the asymmetric Laplace noise; each side of the kink is integrated in its own unit."""
    scales = (sigma / kappa, -sigma / (1.0 - kappa))
    moments = []
    for power in (0, 1, 2):
        gamma = integrate.quad(lambda t, n=power: t**n * math.exp(-t), 0.0, np.inf, epsabs=1e-14)[0]
        moments.append(sum(kappa * (1.0 - kappa) / sigma * abs(scale) * scale**power * gamma for scale in scales))
    return moments[1] / moments[0], moments[2] / moments[0] - (moments[1] / moments[0]) ** 2


def log_exponential_moment(s: float) -> float:
    """log E[exp(z)], z ~ N(0, s^2)."""
    z = np.linspace(s - FAR, s + FAR, 4001)
    return float(np.logaddexp.reduce(s * z - 0.5 * z * z) + math.log((z[1] - z[0]) / math.sqrt(2.0 * math.pi)))


def _cuts(kink: float, low: float, high: float) -> list[float]:
    inner = (-8.0, -2.0, -0.3, 0.0, 0.3, 2.0, 8.0, kink - 0.1, kink, kink + 0.1)
    return [low, *sorted({cut for cut in inner if low < cut < high}), high]


def _integral(integrand: Callable[[float], float], cuts: list[float]) -> float:
    return math.fsum(
        integrate.quad(integrand, low, high, epsabs=1e-14, epsrel=1e-11)[0] for low, high in pairwise(cuts)
    )
