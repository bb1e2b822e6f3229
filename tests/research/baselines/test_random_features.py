"""SNGP's random features against the kernel, its Laplace covariance against exact Bayesian regression and a GP."""

import numpy as np
import pytest
import torch

from ghostless.heads.histogram import Histogram
from learning.config import ModelConfig
from research.baselines.random_features import ProcessHistogramHead, ProcessRegressionHead, RandomFeatureProcess

FEATURES = 3


def kernel(a: np.ndarray, b: np.ndarray, length: float) -> np.ndarray:
    return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / length**2)


def test_features_approximate_the_kernel() -> None:
    torch.manual_seed(0)
    process = RandomFeatureProcess(ModelConfig(random_features=3000, length_scale=1.5), FEATURES, 1)
    phi = torch.randn(40, FEATURES)
    h = process.features(phi)
    np.testing.assert_allclose(h @ h.T, kernel(phi.numpy(), phi.numpy(), 1.5), atol=0.09)


@torch.no_grad()
def test_covariance_is_that_of_bayesian_linear_regression() -> None:
    torch.manual_seed(0)
    head = ProcessRegressionHead(ModelConfig(baseline="sngp", random_features=30, prior_scale=0.7), FEATURES)
    head.log_noise_sd.fill_(np.log(0.4))
    phi = torch.randn(200, FEATURES)
    head.observe(phi[:90])
    head.observe(phi[90:])
    head.process.settle()
    h = head.process.features(phi).double().numpy()
    covariance = np.linalg.inv(np.eye(30) / 0.7**2 + h.T @ h / 0.4**2)
    expected = np.einsum("nd,de,ne->n", h, covariance, h)
    np.testing.assert_allclose(head.predict(phi).epistemic(), expected, rtol=1e-3)


@torch.no_grad()
def test_variance_tends_to_the_gaussian_processs() -> None:
    """Small among its rows, back at the prior's far away, as a GP with the same kernel has it."""
    torch.manual_seed(0)
    head = ProcessRegressionHead(ModelConfig(baseline="sngp", random_features=1500, length_scale=1.0), 1)
    head.log_noise_sd.fill_(np.log(0.3))
    rows = torch.linspace(-2.0, 2.0, 60)[:, None]
    head.observe(rows)
    head.process.settle()
    asked = torch.tensor([[0.0], [1.9], [3.0], [20.0]])
    x, a = rows.numpy(), asked.numpy()
    inner = np.linalg.solve(kernel(x, x, 1.0) + 0.09 * np.eye(60), kernel(x, a, 1.0))
    exact = 1.0 - np.einsum("nm,nm->m", kernel(x, a, 1.0), inner)
    variance = head.predict(asked).epistemic().numpy()
    np.testing.assert_allclose(variance, exact, atol=0.05)
    assert variance[0] < 0.05 < 0.9 < variance[3]


@torch.no_grad()
def test_histogram_reads_its_logits_by_the_mean_field_softmax() -> None:
    torch.manual_seed(0)
    config = ModelConfig(head="cr", baseline="cr-sngp", bins=8, random_features=50)
    head = ProcessHistogramHead(config, FEATURES, 0.0, 2.0)
    head.start_at(torch.rand(500).sort().values)
    phi = torch.randn(30, FEATURES)
    predicted = head.predict(phi)
    assert isinstance(predicted, Histogram)
    h = head.process.features(phi)
    logits = head.process.outputs(h) / torch.sqrt(1 + np.pi / 8 * head.process.variance(h))[:, None]
    np.testing.assert_allclose(predicted.p, torch.softmax(logits, -1), rtol=1e-5)
    before = predicted.logit_variance.clone()
    head.observe(phi.repeat(20, 1))
    head.process.settle()
    assert (head.predict(phi).logit_variance < before).all()


def test_forgetting_returns_to_the_prior() -> None:
    process = RandomFeatureProcess(ModelConfig(random_features=10, prior_scale=2.0), FEATURES, 1)
    h = process.features(torch.randn(5, FEATURES))
    prior = process.variance(h)
    process.observe(h, torch.ones(5))
    process.settle()
    assert (process.variance(h) < prior).all()
    process.forget()
    process.settle()
    np.testing.assert_allclose(process.variance(h).detach(), prior.detach(), rtol=1e-4)
    assert prior.detach().numpy() == pytest.approx(4.0 * h.square().sum(-1).detach().numpy(), rel=1e-5)
