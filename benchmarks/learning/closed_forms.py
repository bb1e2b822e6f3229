"""Checks Theorem 1, Proposition 1 and Corollary 1 against quadrature, and the KL forms against torch."""

from dataclasses import astuple, dataclass

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from benchmarks.learning import references
from benchmarks.learning.exactness import exact_in_float32, log_error, measure
from ghostless.heads.closed_forms import gaussian_kl, laplace
from loadtest.figures import Figures

RATIOS = (0.0, 1e-3, 0.1, 1.0, 3.0, 10.0, 100.0, 1e4)
SPREADS = (1e-6, 1e-3, 1.0, 1e2, 1e4)
KAPPAS = (0.005, 0.3, 0.995)
SIGMAS = (0.1, 1.0)

# Below this log density, float32 has no normal numbers.
UNDERFLOW = -80.0


@dataclass(frozen=True)
class Grid:
    """Arguments of the closed forms, [n] each."""

    delta: Tensor
    s: Tensor
    kappa: Tensor
    sigma: Tensor

    @classmethod
    def extreme(cls) -> "Grid":
        """Points with |delta| / s up to 1e4 on both sides and s from 1e-6 to 1e4; float64, exact in float32."""
        ratios = torch.tensor(sorted({sign * ratio for ratio in RATIOS for sign in (1.0, -1.0)}))
        axes = torch.meshgrid(ratios, torch.tensor(SPREADS), torch.tensor(KAPPAS), torch.tensor(SIGMAS), indexing="ij")
        ratio, s, kappa, sigma = (exact_in_float32(axis.flatten()) for axis in axes)
        return cls(exact_in_float32(ratio * s), s, kappa, sigma)

    def to(self, dtype: torch.dtype) -> "Grid":
        return Grid(*(column.to(dtype) for column in astuple(self)))

    def reference_pinball(self) -> Tensor:
        points = zip(self.delta.tolist(), self.s.tolist(), self.kappa.tolist(), strict=True)
        return torch.tensor([references.expected_pinball(*point) for point in points], dtype=torch.float64)

    def reference_log_density(self) -> Tensor:
        points = torch.stack(astuple(self), -1).tolist()
        return torch.tensor([references.log_density(*point) for point in points], dtype=torch.float64)

    def reference_moments(self) -> Tensor:
        """Mean and variance of m + Laplace noise + s z for m = delta, [2, n]."""
        noise = [
            references.laplace_moments(*pair) for pair in zip(self.kappa.tolist(), self.sigma.tolist(), strict=True)
        ]
        mean, variance = torch.tensor(noise, dtype=torch.float64).T
        return torch.stack([self.delta + mean, self.s**2 + variance])


def expected_pinball(grid: Grid) -> Tensor:
    return laplace.expected_pinball(grid.delta, grid.s, grid.kappa)


def expected_log_likelihood(grid: Grid) -> Tensor:
    return laplace.expected_log_likelihood(grid.delta, grid.s, grid.kappa, grid.sigma)


def log_density(grid: Grid) -> Tensor:
    return laplace.log_density(grid.delta, grid.s, grid.kappa, grid.sigma)


def moments(grid: Grid) -> Tensor:
    return torch.stack(laplace.moments(grid.delta, grid.s, grid.kappa, grid.sigma))


def measure_laplace(figures: Figures) -> None:
    grid = Grid.extreme()
    pinball, reference = grid.reference_pinball(), grid.reference_log_density()
    likelihood = torch.log(grid.kappa * (1.0 - grid.kappa) / grid.sigma) - pinball / grid.sigma
    measure(figures, "Theorem 1, expected pinball", lambda d: expected_pinball(grid.to(d)), pinball)
    measure(figures, "Theorem 1, log likelihood", lambda d: expected_log_likelihood(grid.to(d)), likelihood, log_error)
    measure(figures, "Proposition 1, log density", lambda d: log_density(grid.to(d)), reference, log_error)
    present = reference > UNDERFLOW
    measure(
        figures,
        "Proposition 1, density",
        lambda d: torch.exp(log_density(grid.to(d)))[present],
        torch.exp(reference[present]),
    )
    # A mean may be 0 because m and the noise cancel, so errors are relative to the spread.
    expected = grid.reference_moments()
    scale = torch.stack([expected[0].abs() + expected[1].sqrt(), expected[1]])
    measure(figures, "Corollary 1, moments", lambda d: moments(grid.to(d)) / scale, expected / scale)
    figures.add(
        f"Theorem 1, Proposition 1: non-finite values and gradients, {2 * len(grid.s)} points",
        not_finite(grid.to(torch.float32)) + not_finite(grid),
        "== 0",
    )


def not_finite(grid: Grid) -> int:
    """Number of points where a closed form or its derivative in delta or s is not finite."""
    wrong = torch.zeros_like(grid.s, dtype=torch.bool)
    for form in (expected_pinball, expected_log_likelihood, log_density):
        delta, s = grid.delta.clone().requires_grad_(), grid.s.clone().requires_grad_()
        values = form(Grid(delta, s, grid.kappa, grid.sigma))
        gradients = torch.autograd.grad(values.sum(), (delta, s))
        wrong |= ~torch.stack([values.detach(), *gradients]).isfinite().all(0)
    return int(wrong.sum())


def measure_kl(figures: Figures, outputs: int = 5, features: int = 12, tau: float = 0.7) -> None:
    """Compare all four forms with torch.distributions, which only has dense covariances."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return exact_in_float32(torch.randn(*shape, generator=generator))

    mean, scales = draw(outputs, features), exact_in_float32(draw(outputs).exp())
    variance, factor = exact_in_float32(draw(features).exp()), draw(features, 3)
    cholesky = torch.tril(draw(outputs, features, features), -1) + torch.diag_embed(
        exact_in_float32(draw(outputs, features).exp())
    )
    prior = MultivariateNormal(torch.zeros(features).double(), tau**2 * torch.eye(features).double())

    def reference(covariances: Tensor) -> Tensor:
        return kl_divergence(MultivariateNormal(mean, covariances), prior).sum()

    def shared(covariance: Tensor) -> Tensor:
        return reference(scales.square()[:, None, None] * covariance)

    one = cholesky[0]
    measure(
        figures,
        "KL, dense",
        lambda d: gaussian_kl.dense(mean.to(d), scales.to(d), one.to(d), tau),
        shared(one @ one.T),
    )
    measure(
        figures,
        "KL, low rank",
        lambda d: gaussian_kl.low_rank(mean.to(d), scales.to(d), variance.to(d), factor.to(d), tau),
        shared(torch.diag(variance) + factor @ factor.T),
    )
    measure(
        figures,
        "KL, diagonal",
        lambda d: gaussian_kl.diagonal(mean.to(d), scales.to(d), variance.to(d), tau),
        shared(torch.diag(variance)),
    )
    measure(
        figures,
        "KL, per output",
        lambda d: gaussian_kl.per_output(mean.to(d), torch.ones(len(mean), dtype=d), cholesky.to(d), tau),
        reference(cholesky @ cholesky.mT),
    )
