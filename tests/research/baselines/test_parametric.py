"""Losses of the parametric heads against torch's distributions and the evidential paper's own formula."""

import math
from typing import Any

import numpy as np
import torch
from torch import distributions

from learning.config import ModelConfig
from research.baselines.parametric import EvidentialHead, GaussianHead, MixtureDensityHead, ParametricHead

FEATURES, SPAN = 6, 3.0
PHI = torch.randn(50, FEATURES, generator=torch.Generator().manual_seed(1))
Y = torch.rand(50, generator=torch.Generator().manual_seed(2)) * SPAN


def head(kind: type[ParametricHead], baseline: str, **options: float) -> Any:
    """Of any kind: what they share has no loss."""
    torch.manual_seed(0)
    config = ModelConfig(baseline=baseline, **options)  # type: ignore[arg-type]  # options of many types
    made: Any = kind(config, FEATURES, span=SPAN)  # type: ignore[call-arg]  # of the subclasses
    made.start_at(Y.sort().values)
    return made


@torch.no_grad()
def test_gaussian_loss_is_the_negative_log_likelihood() -> None:
    gaussian = head(GaussianHead, "gaussian")
    predicted = gaussian.predict(PHI)
    expected = -distributions.Normal(predicted.mean(), torch.sqrt(predicted.aleatoric())).log_prob(Y)
    np.testing.assert_allclose(gaussian.loss(PHI, Y), expected, rtol=1e-4, atol=1e-6)
    assert not predicted.epistemic().any()


@torch.no_grad()
def test_mixture_loss_is_the_negative_log_likelihood() -> None:
    network = head(MixtureDensityHead, "mdn")
    predicted = network.predict(PHI)
    mixture = distributions.MixtureSameFamily(
        distributions.Categorical(predicted.weights), distributions.Normal(predicted.locations, predicted.scales)
    )
    np.testing.assert_allclose(network.loss(PHI, Y), -mixture.log_prob(Y), rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_evidential_loss_is_that_of_amini_et_al() -> None:
    """Their Eq. 8 (written with Omega = 2 beta (1 + nu)) and Eq. 9."""
    evidential = head(EvidentialHead, "evidential", evidence_weight=0.3)
    prior = evidential.predict(PHI)
    gamma, nu, alpha, beta = (v.double() for v in (prior.location, prior.evidence, prior.shape, prior.rate))
    y = Y.double()
    omega = 2 * beta * (1 + nu)
    nll = 0.5 * torch.log(math.pi / nu) - alpha * torch.log(omega)
    nll = (
        nll + (alpha + 0.5) * torch.log((y - gamma) ** 2 * nu + omega) + torch.lgamma(alpha) - torch.lgamma(alpha + 0.5)
    )
    expected = nll + 0.3 * (y - gamma).abs() * (2 * nu + alpha)
    np.testing.assert_allclose(evidential.loss(PHI, Y), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_heads_start_at_the_training_marginal() -> None:
    """Where phi says nothing, every head answers with the mean and the variance of the sample (MDN: nearly)."""
    nothing = torch.zeros(1, FEATURES)
    gaussian = head(GaussianHead, "gaussian").predict(nothing)
    assert abs(gaussian.mean().item() - Y.mean().item()) < 1e-4
    assert abs(gaussian.aleatoric().item() / Y.var().item() - 1) < 0.02
    evidential = head(EvidentialHead, "evidential").predict(nothing)
    assert abs(evidential.mean().item() - Y.mean().item()) < 1e-4
    assert abs(evidential.aleatoric().item() / Y.var().item() - 1) < 0.02
    mixture = head(MixtureDensityHead, "mdn").predict(nothing)
    assert abs(mixture.mean().item() - Y.mean().item()) < 0.05
    assert abs(mixture.aleatoric().item() / Y.var().item() - 1) < 0.35


@torch.no_grad()
def test_a_density_never_becomes_a_spike() -> None:
    """On one of the target's atoms the likelihood has no maximum; the floor on the width is what keeps it finite."""
    network = head(MixtureDensityHead, "mdn")
    network.posterior.bias[2 * 5 :] = -100.0
    assert network.predict(PHI).scales.min().item() >= 1e-3 * SPAN * 0.999
    assert torch.isfinite(network.loss(PHI, network.predict(PHI).locations[:, 0])).all()
