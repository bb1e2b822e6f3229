"""Theorem 1, Proposition 1 and Corollary 1 against quadrature, over all scales that can occur."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.learning import references
from benchmarks.learning.closed_forms import Grid, expected_log_likelihood, expected_pinball, log_density, not_finite
from benchmarks.learning.exactness import log_error, relative_error
from ghostless.heads.closed_forms import laplace

# What float32 can hold, so that one reference serves both precisions.
ratios = st.floats(-4.0, 4.0).flatmap(lambda power: st.sampled_from([10.0**power, -(10.0**power), 0.0]))
spreads = st.floats(-6.0, 4.0).map(lambda power: 10.0**power)
kappas = st.floats(0.001, 0.999)
sigmas = st.floats(-2.0, 1.0).map(lambda power: 10.0**power)
PRECISIONS = [(torch.float64, 1e-5), (torch.float32, 1e-3)]


def rounded(*values: float) -> list[float]:
    return torch.tensor(values, dtype=torch.float32).double().tolist()


def tensors(dtype: torch.dtype, *values: float) -> list[torch.Tensor]:
    return [torch.tensor([value], dtype=dtype) for value in values]


@settings(max_examples=150, deadline=None)
@given(ratios, spreads, kappas)
def test_expected_pinball(ratio: float, s: float, kappa: float) -> None:
    arguments = rounded(ratio * s, s, kappa)
    reference = torch.tensor([references.expected_pinball(*arguments)], dtype=torch.float64)
    for dtype, tolerance in PRECISIONS:
        assert relative_error(laplace.expected_pinball(*tensors(dtype, *arguments)), reference) <= tolerance


@settings(max_examples=150, deadline=None)
@given(ratios, spreads, kappas, sigmas)
def test_log_density(ratio: float, s: float, kappa: float, sigma: float) -> None:
    arguments = rounded(ratio * s, s, kappa, sigma)
    reference = torch.tensor([references.log_density(*arguments)], dtype=torch.float64)
    for dtype, tolerance in PRECISIONS:
        assert log_error(laplace.log_density(*tensors(dtype, *arguments)), reference) <= tolerance


def test_references_agree_with_draws() -> None:
    """The quadrature itself, against plain Monte Carlo of the definition."""
    delta, s, kappa, sigma = 0.3, 0.8, 0.2, 0.5
    d = delta + s * torch.randn(1_000_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pinball = torch.maximum(kappa * d, (kappa - 1) * d)
    density = kappa * (1 - kappa) / sigma * torch.exp(-pinball / sigma)
    assert references.expected_pinball(delta, s, kappa) == pytest.approx(pinball.mean().item(), rel=3e-3)
    assert math.exp(references.log_density(delta, s, kappa, sigma)) == pytest.approx(density.mean().item(), rel=3e-3)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
class TestLimits:
    def test_without_spread_theorem_1_is_the_pinball_loss(self, dtype: torch.dtype, tolerance: float) -> None:
        delta, s, kappa = tensors(dtype, -0.7, 1e-6, 0.3)
        assert laplace.expected_pinball(delta, s, kappa).item() == pytest.approx(0.49, rel=tolerance)

    def test_without_spread_proposition_1_is_the_laplace_density(self, dtype: torch.dtype, tolerance: float) -> None:
        delta, s, kappa, sigma = tensors(dtype, 0.7, 1e-6, 0.3, 0.5)
        expected = 0.3 * 0.7 / 0.5 * math.exp(-0.3 * 0.7 / 0.5)
        assert laplace.density(delta, s, kappa, sigma).item() == pytest.approx(expected, rel=tolerance)

    def test_with_a_large_spread_proposition_1_is_the_posterior(self, dtype: torch.dtype, tolerance: float) -> None:
        delta, s, kappa, sigma = tensors(dtype, 5e3, 1e4, 0.5, 0.01)
        expected = math.exp(-0.125) / (1e4 * math.sqrt(2 * math.pi))
        assert laplace.density(delta, s, kappa, sigma).item() == pytest.approx(expected, rel=tolerance)

    def test_nothing_overflows_at_the_corners(self, dtype: torch.dtype, tolerance: float) -> None:
        assert not_finite(Grid.extreme().to(dtype)) == 0


def test_log_likelihood_is_the_pinball_term_with_its_constant() -> None:
    grid = Grid.extreme()
    expected = torch.log(grid.kappa * (1 - grid.kappa) / grid.sigma) - expected_pinball(grid) / grid.sigma
    torch.testing.assert_close(expected_log_likelihood(grid), expected)
    # Jensen: the expected log likelihood never exceeds the log of the expected likelihood.
    assert (expected_log_likelihood(grid) <= log_density(grid) + 1e-6 * log_density(grid).abs() + 1e-6).all()


@pytest.mark.parametrize("kappa", [0.005, 0.3, 0.5, 0.995])
def test_corollary_1_holds_the_moments_of_proposition_1(kappa: float) -> None:
    m, s, sigma = 1.3, 0.4, 0.2
    mean, variance = laplace.moments(*tensors(torch.float64, m, s, kappa, sigma))
    y = torch.linspace(-60.0, 60.0, 400_001, dtype=torch.float64) * (sigma / min(kappa, 1 - kappa)) + m
    f = laplace.density(y - m, *tensors(torch.float64, s, kappa, sigma))
    assert torch.trapezoid(f, y).item() == pytest.approx(1.0, rel=1e-6)
    assert torch.trapezoid(f * y, y).item() == pytest.approx(mean.item(), rel=1e-5)
    assert torch.trapezoid(f * (y - mean) ** 2, y).item() == pytest.approx(variance.item(), rel=1e-5)
