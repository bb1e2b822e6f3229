"""Predictive distributions of the baselines against scipy's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from ghostless.heads.predictive import Predictive
from research.baselines.distributions import Gaussian, GaussianMixture, NormalInverseGamma

POINTS = torch.linspace(-3.0, 4.0, 29)
LEVELS = torch.tensor([0.01, 0.05, 0.3, 0.5, 0.9, 0.99])

GAUSSIAN = Gaussian(torch.tensor([0.3, -1.0]), torch.tensor([0.49, 0.04]), torch.tensor([0.15, 0.0]))
MIXTURE = GaussianMixture(
    torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([[-1.0, 0.2, 2.0]]), torch.tensor([[0.3, 0.05, 0.8]])
)
EVIDENCE = NormalInverseGamma(
    torch.tensor([0.5, -0.2]), torch.tensor([2.0, 0.3]), torch.tensor([3.0, 1.8]), torch.tensor([0.6, 0.9])
)


Function = Callable[[np.ndarray], Any]


def truth(row: int, predictive: Predictive) -> tuple[Function, Function]:
    """scipy's pdf and cdf of one row."""
    if isinstance(predictive, Gaussian):
        sd = float(predictive.noise[row] + predictive.s2[row]) ** 0.5
        frozen = stats.norm(float(predictive.location[row]), sd)
        return frozen.pdf, frozen.cdf
    if isinstance(predictive, NormalInverseGamma):
        location, evidence, shape, rate = (float(v[row]) for v in vars(predictive).values())
        frozen = stats.t(2 * shape, location, np.sqrt(rate * (1 + evidence) / (evidence * shape)))
        return frozen.pdf, frozen.cdf
    assert isinstance(predictive, GaussianMixture)
    parts = [
        (float(w), stats.norm(float(m), float(s)))
        for w, m, s in zip(predictive.weights[row], predictive.locations[row], predictive.scales[row], strict=True)
    ]
    return (lambda y: sum(w * p.pdf(y) for w, p in parts), lambda y: sum(w * p.cdf(y) for w, p in parts))


@pytest.mark.parametrize("predictive", [GAUSSIAN, MIXTURE, EVIDENCE], ids=lambda p: type(p).__name__)
class TestAgainstScipy:
    def test_cdf_and_density(self, predictive: Predictive) -> None:
        for row in range(len(predictive.mean())):
            pdf, cdf = truth(row, predictive)
            np.testing.assert_allclose(predictive.cdf(POINTS)[row], cdf(POINTS.numpy()), atol=2e-6)
            np.testing.assert_allclose(predictive.density(POINTS)[row], pdf(POINTS.numpy()), rtol=2e-5, atol=1e-7)

    def test_quantiles_invert_the_cdf(self, predictive: Predictive) -> None:
        values = predictive.quantiles(LEVELS)
        for row in range(len(values)):
            _, cdf = truth(row, predictive)
            np.testing.assert_allclose(cdf(values[row].double().numpy()), LEVELS, atol=2e-5)

    def test_mean_and_variance_are_those_of_the_density(self, predictive: Predictive) -> None:
        variance = predictive.aleatoric() + predictive.epistemic()
        for row, mean in enumerate(predictive.mean()):
            pdf, _ = truth(row, predictive)
            first = integrate.quad(lambda y, f=pdf: y * f(y), -np.inf, np.inf, limit=400)[0]
            second = integrate.quad(lambda y, f=pdf, m=first: (y - m) ** 2 * f(y), -np.inf, np.inf, limit=400)[0]
            assert mean.item() == pytest.approx(first, abs=1e-5)
            assert variance[row].item() == pytest.approx(second, rel=1e-3)

    def test_points_may_differ_by_row(self, predictive: Predictive) -> None:
        if isinstance(predictive, NormalInverseGamma | Gaussian | GaussianMixture):
            rows = len(predictive.mean())
            at = POINTS[: 2 * rows].reshape(rows, 2)
            whole = predictive.cdf(POINTS)
            for row in range(rows):
                np.testing.assert_allclose(predictive.cdf(at)[row], whole[row, 2 * row : 2 * row + 2], atol=1e-6)


def test_evidential_split_matches_draws_from_its_prior() -> None:
    """sigma^2 ~ inverse gamma(shape, rate), mu ~ N(location, sigma^2 / evidence)."""
    random = np.random.default_rng(0)
    variance = stats.invgamma(3.0, scale=0.6).rvs(400_000, random_state=random)
    mean = random.normal(0.5, np.sqrt(variance / 2.0))
    assert EVIDENCE.aleatoric()[0].item() == pytest.approx(variance.mean(), rel=0.02)
    assert EVIDENCE.epistemic()[0].item() == pytest.approx(mean.var(), rel=0.02)
