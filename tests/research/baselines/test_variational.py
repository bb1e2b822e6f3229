"""VBLL regression against the `vbll` package, parameter by parameter."""

from typing import Any

import numpy as np
import pytest
import torch
import vbll

from learning.config import ModelConfig
from research.baselines.variational import VariationalRegressionHead

FEATURES, ROWS = 7, 40
TAU = 0.8


@pytest.fixture
def pair() -> tuple[VariationalRegressionHead, vbll.Regression]:
    """The same dense posterior, noise and priors in both parametrisations."""
    torch.manual_seed(0)
    ours = VariationalRegressionHead(ModelConfig(baseline="vbll", covariance="dense", prior_scale=TAU), FEATURES)
    # The package's prior_scale is the prior's variance times the number of features.
    theirs = vbll.Regression(
        FEATURES, 1, regularization_weight=1.0 / ROWS, parameterization="dense", prior_scale=TAU**2 * FEATURES
    )
    with torch.no_grad():
        ours.log_noise_sd.fill_(-0.7)
        ours.posterior.log_sd.copy_(torch.randn(FEATURES) * 0.3 - 1.0)
        ours.posterior.lower.copy_(torch.randn(FEATURES, FEATURES) * 0.1)
        theirs.noise_logdiag.fill_(-0.7)
        theirs.W_mean.copy_(ours.posterior.mean)
        theirs.W_logdiag.copy_(ours.posterior.log_sd[None])
        theirs.W_offdiag.copy_(ours.posterior.lower[None])
    return ours, theirs


def test_predictive_mean_and_variance_are_the_packages(
    pair: tuple[VariationalRegressionHead, vbll.Regression],
) -> None:
    ours, theirs = pair
    phi = torch.randn(ROWS, FEATURES)
    predicted, expected = ours.predict(phi), theirs(phi).predictive
    np.testing.assert_allclose(predicted.mean().detach(), expected.mean.squeeze(-1).detach(), rtol=1e-5, atol=1e-6)
    variance = (predicted.aleatoric() + predicted.epistemic()).detach()
    np.testing.assert_allclose(variance, expected.variance.squeeze(-1).detach(), rtol=1e-4)


def test_loss_and_its_gradients_are_the_packages(pair: tuple[VariationalRegressionHead, vbll.Regression]) -> None:
    """Up to the KL's constant, which the package leaves out: D / 2."""
    ours, theirs = pair
    phi, y = torch.randn(ROWS, FEATURES), torch.randn(ROWS)
    mine = ours.loss(phi, y).mean() + ours.kl() / ROWS
    other = theirs(phi).train_loss_fn(y[:, None]).squeeze()
    assert mine.item() + 0.5 * FEATURES / ROWS == pytest.approx(other.item(), rel=1e-5)
    mine.backward()
    other.backward()
    lower = ours.posterior.lower.grad
    assert lower is not None
    pairs: list[tuple[Any, Any]] = [
        (ours.posterior.mean.grad, theirs.W_mean.grad),
        (ours.posterior.log_sd.grad, theirs.W_logdiag.grad[0]),
        (lower.tril(-1), theirs.W_offdiag.grad[0].tril(-1)),
        (ours.log_noise_sd.grad, theirs.noise_logdiag.grad[0]),
    ]
    for got, expected in pairs:
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=1e-6)
