"""Checks the QR predictive distribution against its definition: quadrature of its density, and draws of level and
weights."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import integrate, stats
from torch import Tensor

from benchmarks.learning.exactness import absolute_error, exact_in_float32, measure
from ghostless.heads.closed_forms.quantile_mixture import QuantileMixture
from loadtest.figures import Figures

LEVELS, BANDWIDTH = 100, 1.5
GROUPS = (25, 100)
SPREADS = (1e-6, 1e-4, 1e-2, 0.1, 1.0, 1e2, 1e4)
PROBABILITIES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
GRID_POINTS = 8001


@dataclass(frozen=True)
class Case:
    """Quantiles m [n, K], scales a [K], and s2 [n] from 1e-12 to 1e8; exact in float32."""

    m: Tensor
    s2: Tensor
    scales: Tensor
    groups: int

    @classmethod
    def random(cls, groups: int, seed: int = 0) -> "Case":
        generator = torch.Generator().manual_seed(seed)
        level = (torch.arange(LEVELS) + 0.5) / LEVELS
        two_modes = 0.3 * level + 1.2 * torch.sigmoid((level - 0.6) / 0.05)
        # Quantiles may cross inside a group. In groups of one, equal neighbours would give a spike that no grid
        # resolves.
        noise = 0.01 if groups < LEVELS else 0.0003
        m = two_modes + noise * torch.randn(len(SPREADS), LEVELS, generator=generator)
        scales = torch.exp(0.3 * torch.sin(5.0 * level))
        s2 = torch.tensor(SPREADS).square()
        return cls(exact_in_float32(m), exact_in_float32(s2), exact_in_float32(scales), groups)

    def mixture(self, dtype: torch.dtype = torch.float64) -> QuantileMixture:
        m, s2, scales = (tensor.to(dtype) for tensor in (self.m, self.s2, self.scales))
        return QuantileMixture.from_levels(m, s2, scales, self.groups, BANDWIDTH)

    def components(self) -> tuple[Tensor, Tensor]:
        """Centre and standard deviation of each component [n, G], computed from the definition in numpy."""
        m, a2 = self.m.numpy(), self.scales.square().numpy()
        size = LEVELS // self.groups
        inside = m.reshape(len(m), self.groups, size)
        # r cells of width D have variance (r D)^2 / 12, their centres D^2 (r^2 - 1) / 12.
        filled = inside.var(-1) * size**2 / (size**2 - 1) if size > 1 else np.gradient(m, axis=-1) ** 2 / 12.0
        variance = self.s2.numpy()[:, None] * a2.reshape(self.groups, size).mean(-1) + BANDWIDTH**2 * filled
        return torch.from_numpy(inside.mean(-1)), torch.from_numpy(np.sqrt(variance))

    def grid(self) -> Tensor:
        """Points [n, p] that span each row's distribution, with spacing fine enough for its narrowest component."""
        centres, sd = self.components()
        reach = 12.0 * sd.amax(-1, keepdim=True)
        low, high = centres.amin(-1, keepdim=True) - reach, centres.amax(-1, keepdim=True) + reach
        return exact_in_float32(low + (high - low) * torch.linspace(0.0, 1.0, GRID_POINTS, dtype=torch.float64))


def measure_mixture(figures: Figures) -> None:
    for groups in GROUPS:
        case = Case.random(groups)
        name = f"QR mixture of {groups}"
        _measure_quadrature(figures, name, case)
        _measure_draws(figures, name, case)
        finite = [
            value.isfinite().all()
            for dtype in (torch.float64, torch.float32)
            for value in _everything(case.mixture(dtype), case.grid().to(dtype))
        ]
        figures.add(f"{name}, non-finite values, s 1e-6 to 1e4", len(finite) - sum(map(int, finite)), "== 0")


def _everything(mixture: QuantileMixture, points: Tensor) -> list[Tensor]:
    levels = torch.tensor(PROBABILITIES, dtype=points.dtype)
    return [
        mixture.cdf(points),
        mixture.density(points),
        mixture.quantiles(levels),
        mixture.mean(),
        mixture.aleatoric(),
        mixture.epistemic(),
    ]


def _measure_quadrature(figures: Figures, name: str, case: Case) -> None:
    centres, sd = case.components()
    points = case.grid()
    exact = stats.norm.pdf(points.numpy()[:, :, None], centres.numpy()[:, None], sd.numpy()[:, None]).mean(-1)
    # Errors of the density are relative to the maximum of its row, because far tails underflow.
    height = torch.from_numpy(exact.max(-1, keepdims=True))
    measure(
        figures,
        f"{name}, density",
        lambda d: case.mixture(d).density(points.to(d)) / height,
        torch.from_numpy(exact) / height,
        absolute_error,
    )
    below = torch.from_numpy(integrate.cumulative_simpson(exact, x=points.numpy(), initial=0.0))
    measure(
        figures,
        f"{name}, CDF",
        lambda d: case.mixture(d).cdf(points.to(d)),
        below,
        absolute_error,
    )
    mean = integrate.simpson(exact * points.numpy(), x=points.numpy())
    variance = integrate.simpson(exact * (points.numpy() - mean[:, None]) ** 2, x=points.numpy())
    measure(figures, f"{name}, mean", lambda d: case.mixture(d).mean(), torch.from_numpy(mean))
    measure(
        figures,
        f"{name}, aleatoric + epistemic",
        lambda d: case.mixture(d).aleatoric() + case.mixture(d).epistemic(),
        torch.from_numpy(variance),
    )
    levels = torch.tensor(PROBABILITIES, dtype=torch.float64)
    measure(
        figures,
        f"{name}, CDF at its quantiles",
        lambda d: _normal_mixture_cdf(case, case.mixture(d).quantiles(levels.to(d))),
        levels.expand(len(SPREADS), -1),
    )
    _measure_split(figures, name, case)


def _normal_mixture_cdf(case: Case, y: Tensor) -> Tensor:
    centres, sd = (tensor.numpy()[:, None] for tensor in case.components())
    return torch.from_numpy(stats.norm.cdf(y.double().numpy()[:, :, None], centres, sd).mean(-1))


def _measure_split(figures: Figures, name: str, case: Case) -> None:
    """Compare with Var_w(E[y | w]) and E_w[Var(y | w)], by Gauss-Hermite quadrature over the eps that all levels
    share."""
    nodes, weights = (torch.from_numpy(values) for values in np.polynomial.hermite_e.hermegauss(20))
    weights = weights / weights.sum()
    means, variances = _given_eps(case, nodes)
    epistemic = (means - (means @ weights)[:, None]).square() @ weights
    measure(figures, f"{name}, epistemic", lambda d: case.mixture(d).epistemic(), epistemic)
    measure(figures, f"{name}, aleatoric", lambda d: case.mixture(d).aleatoric(), variances @ weights)


def _given_eps(case: Case, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of y given eps = s * node: [n, nodes] each. Level k predicts c_g + a_k eps + kernel noise."""
    centres, sd = case.components()
    size = LEVELS // case.groups
    kernel = sd.square() - case.s2[:, None] * case.scales.square().reshape(case.groups, size).mean(-1)
    eps = case.s2.sqrt()[:, None] * nodes
    answer = centres.repeat_interleave(size, -1)[:, None] + eps[..., None] * case.scales
    return answer.mean(-1), answer.var(-1, correction=0) + kernel.mean(-1)[:, None]


def _measure_draws(figures: Figures, name: str, case: Case, draws: int = 200_000) -> None:
    """Draw a level and the weights, y = w_u . phi: the served CDF must match that of the draws."""
    generator = torch.Generator().manual_seed(1)
    centres, sd = case.components()
    size = LEVELS // case.groups
    a = case.scales.square().reshape(case.groups, size).mean(-1).sqrt()
    kernel = (sd.square() - case.s2[:, None] * a.square()).clamp(min=0.0).sqrt()
    group = torch.randint(case.groups, (draws,), generator=generator)
    eps, noise = torch.randn(2, draws, generator=generator, dtype=torch.float64)
    worst = 0.0
    for row in range(len(SPREADS)):
        y = centres[row, group] + a[group] * case.s2[row].sqrt() * eps + kernel[row, group] * noise
        ordered = y.sort().values
        points = ordered[:: draws // 500].contiguous()
        empirical = torch.searchsorted(ordered, points, right=True) / draws
        worst = max(worst, (case.mixture().cdf(points)[row] - empirical).abs().max().item())
    # By chance, Kolmogorov's statistic exceeds 2.23 once in 10,000 times.
    figures.add(f"{name}, CDF against {draws:,} draws, Kolmogorov", worst * math.sqrt(draws), "<= 2.23")
