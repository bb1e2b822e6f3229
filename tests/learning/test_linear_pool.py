"""Pools of distributions against sampling and against the members' own closed forms."""

import numpy as np
import torch

from ghostless.heads.histogram import Histogram
from learning.linear_pool import LinearPool
from research.baselines.distributions import Gaussian

POINTS = torch.linspace(-2.0, 3.0, 21)


def gaussians() -> LinearPool:
    members = (
        Gaussian(torch.tensor([0.0, 1.0]), torch.tensor([0.04, 0.25]), torch.tensor([0.01, 0.0])),
        Gaussian(torch.tensor([1.5, 1.0]), torch.tensor([0.09, 0.25]), torch.tensor([0.02, 0.0])),
    )
    return LinearPool(members, torch.tensor([0.25, 0.75]))


def test_moments_are_those_of_draws_from_a_drawn_member() -> None:
    random = np.random.default_rng(0)
    second = random.random(500_000) < 0.75
    mean = np.where(second, 1.5, 0.0) + np.where(second, np.sqrt(0.02), np.sqrt(0.01)) * random.normal(size=500_000)
    noise = np.where(second, 0.09, 0.04)
    pool = gaussians()
    np.testing.assert_allclose(pool.mean()[0], mean.mean(), atol=0.005)
    np.testing.assert_allclose(pool.epistemic()[0], mean.var(), rtol=0.01)
    np.testing.assert_allclose(pool.aleatoric()[0], noise.mean(), rtol=0.01)


def test_members_that_agree_are_no_pool() -> None:
    pool, alone = gaussians(), gaussians().members[0]
    np.testing.assert_allclose(pool.cdf(POINTS)[1], alone.cdf(POINTS)[1], atol=1e-6)
    np.testing.assert_allclose(pool.epistemic()[1], alone.epistemic()[1], atol=1e-6)


def test_quantiles_invert_the_pools_cdf() -> None:
    levels = torch.tensor([0.05, 0.2, 0.25, 0.5, 0.95])
    pool = gaussians()
    values = pool.quantiles(levels)
    np.testing.assert_allclose(pool.cdf(values), levels.expand(2, -1), atol=1e-5)
    assert (values.diff(dim=-1) > 0).all()


def test_a_pool_of_histograms_is_the_histogram_of_the_mean() -> None:
    edges = torch.linspace(0.0, 2.0, 6)
    p = torch.softmax(torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)), -1)
    pool = LinearPool.equal(tuple(Histogram(one, torch.zeros(3), edges) for one in p))
    mean = Histogram(p.mean(0), torch.zeros(3), edges)
    levels = torch.tensor([0.1, 0.5, 0.9])
    np.testing.assert_allclose(pool.cdf(POINTS), mean.cdf(POINTS), atol=1e-6)
    np.testing.assert_allclose(pool.density(POINTS), mean.density(POINTS), atol=1e-6)
    np.testing.assert_allclose(pool.quantiles(levels), mean.quantiles(levels), atol=1e-4)
    total = pool.aleatoric() + pool.epistemic()
    np.testing.assert_allclose(total, mean.aleatoric() + mean.epistemic(), rtol=1e-4)
