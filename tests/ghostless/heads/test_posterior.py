"""Variance and KL of every form of the posterior against the dense covariance that it stands for."""

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

from ghostless.heads.posterior import Posterior
from tests.support.training import small_model

SHARED = ("dense", "lowrank", "diagonal")
D, K = 9, 5


def posterior(covariance: str, method: str = "vbll", scaled: bool = True) -> Posterior:
    """With parameters away from where they start, where forms could agree by accident."""
    torch.manual_seed(0)
    made = Posterior(
        small_model(covariance=covariance, method=method, prior_scale=0.8).posterior, D, K, scaled
    ).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name != "log_scales" or parameter.requires_grad:
                parameter.copy_(0.5 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("covariance", SHARED)
class TestShared:
    def test_variance_is_phi_s_phi(self, covariance: str) -> None:
        q = posterior(covariance)
        phi = torch.randn(30, D, dtype=torch.float64)
        expected = torch.einsum("nd,de,ne->n", phi, q.dense_covariance(), phi)
        torch.testing.assert_close(q.variance(phi), expected)

    def test_kl_is_torchs(self, covariance: str) -> None:
        q = posterior(covariance)
        prior = MultivariateNormal(torch.zeros(D).double(), 0.64 * torch.eye(D).double())
        covariances = q.scales.square()[:, None, None] * q.dense_covariance()
        expected = kl_divergence(MultivariateNormal(q.mean, covariances), prior).sum()
        torch.testing.assert_close(q.kl(), expected)

    def test_s_is_a_covariance(self, covariance: str) -> None:
        s = posterior(covariance).dense_covariance()
        torch.testing.assert_close(s, s.T)
        assert torch.linalg.eigvalsh(s.detach()).min() > 0


def test_per_output_has_a_variance_of_its_own_for_each() -> None:
    q = posterior("per-output")
    phi = torch.randn(7, D, dtype=torch.float64)
    covariances = q.cholesky() @ q.cholesky().mT
    torch.testing.assert_close(q.variance(phi), torch.einsum("nd,kde,ne->nk", phi, covariances, phi))
    prior = MultivariateNormal(torch.zeros(D).double(), 0.64 * torch.eye(D).double())
    scaled = q.scales.square()[:, None, None] * covariances
    expected = kl_divergence(MultivariateNormal(q.mean, scaled), prior).sum()
    torch.testing.assert_close(q.kl(), expected)
    assert not q.shared


def test_the_deterministic_twin_has_no_spread_and_nothing_to_train_for_it() -> None:
    q = posterior("lowrank", method="deterministic")
    assert q.variance(torch.randn(4, D).double()).eq(0).all()
    assert q.kl().item() == 0
    assert q.dense_covariance().eq(0).all()
    assert not [p for p in q.covariance_parameters() if p.requires_grad]


@pytest.mark.parametrize("covariance", [*SHARED, "per-output"])
def test_spread_and_rest_are_told_apart(covariance: str) -> None:
    q = posterior(covariance)
    spread = {id(p) for p in q.covariance_parameters()}
    rest = [name for name, p in q.named_parameters() if id(p) not in spread]
    assert sorted(rest) == ["bias", "mean"]
    assert all(isinstance(p, nn.Parameter) for p in q.covariance_parameters())


def test_twin_and_vbll_start_from_the_same_means() -> None:
    means = []
    for method in ("vbll", "deterministic"):
        torch.manual_seed(3)
        means.append(Posterior(small_model(method=method).posterior, D, K, scaled=True).mean)
    assert torch.equal(*means)
