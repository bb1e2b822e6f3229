"""The CR predictive distribution against autograd, quadrature and draws from the posterior."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.learning.categorical import histogram_moments, logits, softmax_jacobian, uneven_edges
from benchmarks.learning.sampling import sample
from ghostless.heads.closed_forms import categorical
from ghostless.heads.histogram import Histogram

M = torch.cat([logits(scale, rows=3) for scale in (0.5, 2.0, 6.0)])
VARIANCES = (0.0, 1e-12, 0.01, 1.0, 100.0, 1e4, 1e8)
PRECISIONS = [(torch.float64, 1e-5), (torch.float32, 1e-3)]


def constant(s2: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full((len(M),), s2, dtype=dtype)


@pytest.mark.parametrize("s2", [0.01, 1.0, 10.0])
def test_jensen_bound_lies_above_the_drawn_cross_entropy(s2: float) -> None:
    label = M.argmax(-1)
    bound = categorical.jensen_bound(M, constant(s2), label)
    for row in range(len(M)):
        drawn = sample(M[row], s2, int(label[row]), draws=10_000)
        assert bound[row].item() >= drawn.cross_entropy - 4 * drawn.cross_entropy_error


def test_jensen_bound_is_tight_without_spread_and_the_same_per_output() -> None:
    label = torch.arange(len(M))
    exact = torch.nn.functional.cross_entropy(M, label, reduction="none")
    torch.testing.assert_close(categorical.jensen_bound(M, constant(0.0), label), exact)
    same = constant(2.5).unsqueeze(-1).expand_as(M)
    per_output = categorical.jensen_bound_per_output(M, same, label)
    torch.testing.assert_close(per_output, categorical.jensen_bound(M, constant(2.5), label))


@pytest.mark.parametrize("s2", [0.01, 1.0, 10.0, 1e3])
def test_probit_softmax_is_near_the_drawn_mean(s2: float) -> None:
    p = categorical.probit_softmax(M, constant(s2))
    for row in range(len(M)):
        drawn = sample(M[row], s2, 0, draws=20_000)
        assert (p[row] - drawn.p).abs().max() < 0.05


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("s2", VARIANCES)
class TestSplit:
    def test_the_papers_terms_are_the_softmax_jacobian_s(self, s2: float, dtype: torch.dtype, tolerance: float) -> None:
        p = torch.softmax(M, -1)
        jacobians = torch.stack([softmax_jacobian(row) for row in M])
        split = categorical.gini_decomposition(p.to(dtype), constant(s2, dtype))
        expected = s2 * jacobians.square().sum((-2, -1))
        torch.testing.assert_close(split.delta.double(), expected, rtol=tolerance, atol=0.0)
        edges = uneven_edges()
        gradient = jacobians.mT @ (0.5 * (edges[1:] + edges[:-1]))
        delta = categorical.target_moments(p.to(dtype), constant(s2, dtype), edges.to(dtype))[1].delta
        torch.testing.assert_close(delta.double(), s2 * gradient.square().sum(-1), rtol=tolerance, atol=0.0)

    def test_parts_lie_in_range_and_add_up(self, s2: float, dtype: torch.dtype, tolerance: float) -> None:
        p = categorical.probit_softmax(M.to(dtype), constant(s2, dtype))
        gini = categorical.gini_decomposition(p, constant(s2, dtype))
        moments = categorical.target_moments(p, constant(s2, dtype), uneven_edges().to(dtype))[1]
        for split in (gini, moments):
            assert split.epistemic.isfinite().all()
            assert (split.aleatoric >= 0).all()
            assert (split.epistemic >= 0).all()
            torch.testing.assert_close(split.aleatoric + split.epistemic, split.total)

    def test_moments_are_those_of_the_histogram(self, s2: float, dtype: torch.dtype, tolerance: float) -> None:
        p, edges = torch.softmax(M, -1), uneven_edges()
        mean, variance = histogram_moments(p, edges)
        actual, split = categorical.target_moments(p.to(dtype), constant(s2, dtype), edges.to(dtype))
        torch.testing.assert_close(actual.double(), mean, rtol=tolerance, atol=0.0)
        torch.testing.assert_close(split.total.double(), variance, rtol=tolerance, atol=0.0)


def test_epistemic_is_the_papers_when_small_and_all_of_it_when_large() -> None:
    small = categorical.gini_decomposition(torch.softmax(M, -1), constant(1e-8))
    torch.testing.assert_close(small.epistemic, small.delta, rtol=1e-6, atol=0.0)
    large = categorical.gini_decomposition(torch.softmax(M, -1), constant(1e12))
    torch.testing.assert_close(large.epistemic, large.total, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("s2", [0.01, 1.0, 100.0, 1e4])
def test_served_epistemic_is_near_the_drawn_one(s2: float) -> None:
    split = categorical.gini_decomposition(categorical.probit_softmax(M, constant(s2)), constant(s2))
    for row in range(len(M)):
        drawn = sample(M[row], s2, 0, draws=20_000)
        assert abs(split.epistemic[row].item() - drawn.epistemic) <= 0.2 * drawn.total
        # Where the paper's own term passes all there is.
        if s2 >= 100:
            assert split.delta[row].item() > 2 * drawn.total


def test_a_sure_bin_has_neither_part() -> None:
    p = torch.nn.functional.one_hot(torch.tensor([3]), 40).float()
    split = categorical.gini_decomposition(p, torch.tensor([7.0]))
    assert (split.total.item(), split.epistemic.item(), split.aleatoric.item()) == (0.0, 0.0, 0.0)


class TestHistogram:
    predictive = Histogram(torch.softmax(M, -1), constant(1.0), uneven_edges())

    def test_density_is_the_slope_of_the_cdf(self) -> None:
        points = torch.linspace(0.013, 2.97, 60, dtype=torch.float64)
        slope = (self.predictive.cdf(points + 1e-7) - self.predictive.cdf(points - 1e-7)) / 2e-7
        torch.testing.assert_close(self.predictive.density(points), slope, rtol=1e-5, atol=1e-6)

    def test_has_nothing_outside_its_range(self) -> None:
        outside = torch.tensor([-1.0, 3.5], dtype=torch.float64)
        assert self.predictive.density(outside).eq(0).all()
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64).expand(len(M), -1)
        torch.testing.assert_close(self.predictive.cdf(outside), ends)

    def test_quantiles_bracket_the_mean_and_rise(self) -> None:
        quantiles = self.predictive.quantiles(torch.linspace(0.01, 0.99, 50, dtype=torch.float64))
        assert (quantiles.diff(dim=-1) >= 0).all()
        assert (quantiles[:, 0] < self.predictive.mean()).all()
        assert (quantiles[:, -1] > self.predictive.mean()).all()


@settings(max_examples=100, deadline=None)
@given(st.floats(0.0, 1e30), st.floats(0.0, 1e30))
def test_saturation_never_exceeds_either_side(delta: float, total: float) -> None:
    for dtype in (torch.float64, torch.float32):
        d, t = torch.tensor(delta, dtype=dtype), torch.tensor(total, dtype=dtype)
        value = categorical.saturated(d, t).item()
        assert math.isfinite(value)
        assert 0.0 <= value <= t.item()
        assert value <= d.item() * (1 + 1e-6)
