"""Checks the exact parts of the CR predictive distribution against quadrature, autograd and numpy's interpolation."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.learning import references
from benchmarks.learning.exactness import absolute_error, exact_in_float32, measure
from ghostless.contract.distribution import LEAST_MASS
from ghostless.heads.closed_forms import categorical, piecewise
from ghostless.heads.closed_forms.categorical import Decomposition
from ghostless.heads.histogram import Histogram
from loadtest.figures import Figures

BINS = 40
LOGIT_SCALES = (0.5, 2.0, 6.0)


def logits(scale: float, rows: int, seed: int = 0) -> Tensor:
    """Mean logits [rows, K] with one to three modes each and a spread of about `scale`; float64, exact in float32."""
    generator = torch.Generator().manual_seed(seed)
    position = torch.linspace(0.0, 1.0, BINS)
    waves = torch.sin(position * 15.0 * torch.rand(rows, 1, generator=generator))
    noise = 0.3 * torch.randn(rows, BINS, generator=generator)
    return exact_in_float32(scale * (waves + noise))


def measure_exact(figures: Figures, rows: int = 16) -> None:
    m = torch.cat([logits(scale, rows) for scale in LOGIT_SCALES])
    s2 = exact_in_float32(torch.logspace(-12, 8, len(m), dtype=torch.float64))
    label = torch.arange(len(m)) % BINS
    moment = torch.tensor([references.log_exponential_moment(value**0.5) for value in s2.tolist()], dtype=torch.float64)
    bound = moment + torch.log(torch.exp(m).sum(-1)) - m[torch.arange(len(m)), label]
    measure(figures, "Jensen bound", lambda d: categorical.jensen_bound(m.to(d), s2.to(d), label), bound)
    # The split is a function of p, so p itself is exact in float32 here.
    _measure_split(figures, exact_in_float32(torch.softmax(m, -1)), s2)
    _measure_histogram(figures, exact_in_float32(torch.softmax(m, -1)), s2)


def _measure_split(figures: Figures, p: Tensor, s2: Tensor) -> None:
    edges = uneven_edges()
    jacobians = torch.stack([softmax_jacobian(row) for row in torch.log(p)])
    gini, gini_delta = 1.0 - p.square().sum(-1), s2 * jacobians.square().sum((-2, -1))
    mean, variance = histogram_moments(p, edges)
    delta = s2 * (jacobians.mT @ (0.5 * (edges[1:] + edges[:-1]))).square().sum(-1)

    def split(dtype: torch.dtype) -> Decomposition:
        return categorical.gini_decomposition(p.to(dtype), s2.to(dtype))

    def moments(dtype: torch.dtype) -> tuple[Tensor, Decomposition]:
        return categorical.target_moments(p.to(dtype), s2.to(dtype), edges.to(dtype))

    checks: dict[str, tuple[Callable[[torch.dtype], Tensor], Tensor]] = {
        "Gini, total": (lambda d: split(d).total, gini),
        "Gini, the paper's epistemic": (lambda d: split(d).delta, gini_delta),
        "Gini, served epistemic": (lambda d: split(d).epistemic, gini_delta * gini / (gini_delta + gini)),
        "CR mean": (lambda d: moments(d)[0], mean),
        "CR variance": (lambda d: moments(d)[1].total, variance),
        "CR variance, delta method": (lambda d: moments(d)[1].delta, delta),
        "CR variance, served epistemic": (lambda d: moments(d)[1].epistemic, delta * variance / (delta + variance)),
    }
    for name, (evaluate, reference) in checks.items():
        measure(figures, name, evaluate, reference)


def uneven_edges() -> Tensor:
    """K + 1 edges on [0, 3], narrow near 0."""
    return exact_in_float32(torch.linspace(0.0, 3.0, BINS + 1).square() / 3.0)


def softmax_jacobian(row: Tensor) -> Tensor:
    """d softmax / d logits [K, K], by autograd."""
    jacobian: Tensor = torch.autograd.functional.jacobian(lambda z: torch.softmax(z, -1), row)
    return jacobian


def histogram_moments(p: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance [n] of a histogram by Gauss-Legendre quadrature inside every bin, exact for polynomials."""
    nodes, weights = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(3))
    halves = 0.5 * (edges[1:] - edges[:-1]).unsqueeze(-1)
    points = (0.5 * (edges[1:] + edges[:-1])).unsqueeze(-1) + halves * nodes
    masses = p.unsqueeze(-1) * (0.5 * weights)
    mean = (masses * points).sum((-2, -1))
    return mean, (masses * (points - mean[:, None, None]).square()).sum((-2, -1))


def _measure_histogram(figures: Figures, p: Tensor, s2: Tensor) -> None:
    edges, points = uneven_edges(), exact_in_float32(torch.linspace(-0.1, 3.1, 333))
    measure(
        figures,
        "CR CDF",
        lambda d: Histogram(p.to(d), s2.to(d), edges.to(d)).cdf(points.to(d)),
        interpolated_cdf(p, edges, points.expand(len(p), -1)),
        absolute_error,
    )
    levels = exact_in_float32(torch.linspace(0.01, 0.99, 99))
    # The inverse is exact if every bin has at least LEAST_MASS; with emptier bins, its error is at most that mass.
    full = exact_in_float32((p + 2.0 * LEAST_MASS) / (1.0 + 2.0 * BINS * LEAST_MASS))
    measure(
        figures,
        "piecewise quantiles, CDF at them",
        lambda d: _cdf_at_quantiles(full, edges, levels, d),
        levels.expand(len(p), -1),
        absolute_error,
    )
    for dtype in (torch.float64, torch.float32):
        error = absolute_error(_cdf_at_quantiles(p, edges, levels, dtype), levels.expand(len(p), -1))
        name = f"piecewise quantiles with empty bins, error in level, {str(dtype).removeprefix('torch.')}"
        figures.add(name, error, f"<= {LEAST_MASS * 1.001:.6g}")


def _cdf_at_quantiles(p: Tensor, edges: Tensor, levels: Tensor, dtype: torch.dtype) -> Tensor:
    quantiles = piecewise.quantiles(categorical.cdf_at_edges(p.to(dtype)), edges.to(dtype), levels.to(dtype))
    return interpolated_cdf(p, edges, quantiles.double())


def interpolated_cdf(p: Tensor, edges: Tensor, points: Tensor) -> Tensor:
    """A histogram's CDF at points [n, q], by numpy's interpolation."""
    knots = np.concatenate([np.zeros((len(p), 1)), p.numpy().cumsum(-1)], -1)
    rows = [np.interp(row, edges.numpy(), heights) for row, heights in zip(points.numpy(), knots, strict=True)]
    return torch.from_numpy(np.stack(rows))
