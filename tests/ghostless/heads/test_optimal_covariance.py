"""CR's best covariance: the exact one, and the nearest diagonal and low-rank ones."""

import pytest
import torch
from torch import Tensor

from ghostless.heads import optimal_covariance
from ghostless.heads.config import CovarianceName, PosteriorConfig
from ghostless.heads.posterior import Posterior

D, K, BETA, TAU = 12, 5, 0.1, 0.8


def features() -> Tensor:
    """Rows whose columns are correlated and of scales from 0.01 to 10."""
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(400, D, generator=generator) @ torch.randn(D, D, generator=generator)
    return mixed * torch.logspace(-2, 1, D)


def fitted(covariance: CovarianceName) -> tuple[Posterior, Tensor]:
    torch.manual_seed(1)
    posterior = Posterior(PosteriorConfig(covariance, rank=3, prior_scale=TAU), D, K, scaled=False).double()
    phi = features().double()
    inverse = optimal_covariance.precision(phi.T @ phi, BETA, K, TAU)
    optimal_covariance.fit(posterior, inverse)
    return posterior, inverse


def objective(posterior: Posterior) -> Tensor:
    """What training minimises, of which only S is left: sum_i s_i^2 / 2 + beta KL."""
    return 0.5 * posterior.variance(features().double()).sum() + BETA * posterior.kl()


@pytest.mark.parametrize("covariance", ["dense", "lowrank", "diagonal"])
def test_nothing_is_left_to_train(covariance: CovarianceName) -> None:
    posterior, _ = fitted(covariance)
    own = [parameter for parameter in posterior.covariance_parameters() if parameter.requires_grad]
    least = objective(posterior)
    for gradient in torch.autograd.grad(least, own):
        assert gradient.abs().max().item() < 1e-3 * least.item()
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        with torch.no_grad():
            kept = [parameter.clone() for parameter in own]
            for parameter in own:
                parameter.add_(0.05 * parameter.abs() * torch.randn(parameter.shape, generator=generator))
            assert objective(posterior).item() > least.item() * (1.0 - 1e-5)
            for parameter, value in zip(own, kept, strict=True):
                parameter.copy_(value)


def test_dense_is_the_inverse() -> None:
    posterior, inverse = fitted("dense")
    torch.testing.assert_close(posterior.dense_covariance() @ inverse, torch.eye(D).double(), rtol=0, atol=1e-3)


def test_each_form_is_nearer_than_a_simpler_one() -> None:
    dense, lowrank, diagonal = (objective(fitted(form)[0]).item() for form in ("dense", "lowrank", "diagonal"))
    assert dense < lowrank < diagonal
