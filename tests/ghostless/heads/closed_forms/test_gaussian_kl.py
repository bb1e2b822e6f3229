"""The four KL forms against torch.distributions."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from ghostless.heads.closed_forms import gaussian_kl

K, D, R = 4, 9, 3


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def expected(mean: Tensor, covariances: Tensor, tau: float) -> float:
    prior = MultivariateNormal(torch.zeros(D).double(), tau**2 * torch.eye(D).double())
    return kl_divergence(MultivariateNormal(mean, covariances), prior).sum().item()


@pytest.mark.parametrize("tau", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("seed", [0, 1])
class TestAgainstTorch:
    def test_dense(self, seed: int, tau: float) -> None:
        mean, scales = draw(seed, K, D), draw(seed + 10, K).exp()
        cholesky = torch.tril(draw(seed + 20, D, D), -1) + torch.diag(draw(seed + 30, D).exp())
        covariances = scales.square()[:, None, None] * (cholesky @ cholesky.T)
        actual = gaussian_kl.dense(mean, scales, cholesky, tau).item()
        assert actual == pytest.approx(expected(mean, covariances, tau), rel=1e-9)

    def test_low_rank(self, seed: int, tau: float) -> None:
        mean, scales, variance = draw(seed, K, D), draw(seed + 10, K).exp(), draw(seed + 20, D).exp()
        factor = draw(seed + 30, D, R)
        covariances = scales.square()[:, None, None] * (torch.diag(variance) + factor @ factor.T)
        actual = gaussian_kl.low_rank(mean, scales, variance, factor, tau).item()
        assert actual == pytest.approx(expected(mean, covariances, tau), rel=1e-9)

    def test_diagonal(self, seed: int, tau: float) -> None:
        mean, scales, variance = draw(seed, K, D), draw(seed + 10, K).exp(), draw(seed + 20, D).exp()
        covariances = scales.square()[:, None, None] * torch.diag(variance)
        actual = gaussian_kl.diagonal(mean, scales, variance, tau).item()
        assert actual == pytest.approx(expected(mean, covariances, tau), rel=1e-9)

    def test_per_output(self, seed: int, tau: float) -> None:
        mean, scales = draw(seed, K, D), draw(seed + 10, K).exp()
        cholesky = torch.tril(draw(seed + 20, K, D, D), -1) + torch.diag_embed(draw(seed + 30, K, D).exp())
        covariances = scales.square()[:, None, None] * (cholesky @ cholesky.mT)
        actual = gaussian_kl.per_output(mean, scales, cholesky, tau).item()
        assert actual == pytest.approx(expected(mean, covariances, tau), rel=1e-9)


def test_is_zero_at_the_prior_and_only_there() -> None:
    tau = 0.7
    mean, scales, variance = torch.zeros(K, D), torch.ones(K), torch.full((D,), tau**2)
    assert gaussian_kl.diagonal(mean, scales, variance, tau).item() == pytest.approx(0.0, abs=1e-5)
    for change in (0.5, 2.0):
        assert gaussian_kl.diagonal(mean, scales * change, variance, tau).item() > 1.0
    assert gaussian_kl.diagonal(mean + 0.5, scales, variance, tau).item() > 1.0
