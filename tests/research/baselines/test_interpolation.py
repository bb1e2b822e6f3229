"""The paper's reading of quantiles: straight lines between them, moved by the posterior."""

import numpy as np
import torch

from research.baselines.interpolation import InterpolatedQuantiles

LEVELS = torch.tensor([0.1, 0.3, 0.6, 0.9])
PLACES = torch.tensor([[0.0, 0.5, 0.6, 2.0]])


def test_without_a_posterior_the_cdf_is_linear_between_quantiles() -> None:
    still = InterpolatedQuantiles.from_levels(PLACES[:, [1, 0, 3, 2]], torch.zeros(1), LEVELS)
    points = torch.tensor([-0.1, 0.0, 0.25, 0.55, 1.3, 1.99, 2.0, 5.0])
    expected = np.interp(points.numpy(), PLACES[0].numpy(), LEVELS.numpy())
    expected[[0, -2, -1]] = [0.0, 1.0, 1.0]
    np.testing.assert_allclose(still.cdf(points)[0], expected, atol=1e-6)


def test_under_a_posterior_it_is_the_mean_of_moved_curves() -> None:
    moved = InterpolatedQuantiles.from_levels(PLACES, torch.tensor([0.04]), LEVELS)
    still = InterpolatedQuantiles.from_levels(PLACES, torch.zeros(1), LEVELS)
    points = torch.linspace(-1.0, 3.0, 17)
    eps = 0.2 * torch.randn(40_000, generator=torch.Generator().manual_seed(0))
    drawn = still.cdf((points[None] - eps[:, None]).flatten()[None]).reshape(len(eps), -1).mean(0)
    np.testing.assert_allclose(moved.cdf(points)[0], drawn, atol=0.006)


def test_quantiles_invert_the_cdf_and_the_density_integrates_to_one() -> None:
    moved = InterpolatedQuantiles.from_levels(PLACES, torch.tensor([0.01]), LEVELS)
    levels = torch.tensor([0.05, 0.2, 0.5, 0.95])
    np.testing.assert_allclose(moved.cdf(moved.quantiles(levels)), levels[None], atol=1e-4)
    grid = torch.linspace(-1.5, 3.5, 4001)
    assert abs(torch.trapezoid(moved.density(grid), grid).item() - 1.0) < 5e-3


def test_moments_are_the_papers_trapezoids_over_the_mass_that_they_cover() -> None:
    read = InterpolatedQuantiles.from_levels(PLACES, torch.tensor([0.3]), LEVELS)
    q, k = PLACES[0].numpy().astype(float), np.diff(LEVELS.numpy().astype(float))
    mean = np.sum(k * (q[1:] + q[:-1]) / 2) / 0.8
    second = np.sum(k * (q[1:] ** 2 + q[1:] * q[:-1] + q[:-1] ** 2) / 3) / 0.8
    assert abs(read.mean().item() - mean) < 1e-6
    assert abs(read.aleatoric().item() - (second - mean**2)) < 1e-6
    assert abs(read.epistemic().item() - 0.3) < 1e-6


def test_quantiles_that_coincide_are_a_step() -> None:
    places = torch.tensor([[0.0, 1.0, 1.0, 2.0]])
    for s2 in (0.0, 1e-6, 0.04):
        cdf = InterpolatedQuantiles.from_levels(places, torch.tensor([s2]), LEVELS).cdf(torch.linspace(-1, 3, 101))
        assert torch.isfinite(cdf).all()
        assert (cdf.diff() >= -1e-6).all()
