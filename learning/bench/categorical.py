"""The CR predictive distribution: exact parts against quadrature and autograd, approximate ones against sampling."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from cli.figures import Figures
from learning.bench import references
from learning.bench.exactness import exact_in_float32, measure
from learning.closed_forms import categorical, piecewise
from learning.closed_forms.categorical import Histogram

BINS = 40
LOGIT_SCALES = (0.5, 2.0, 6.0)
VARIANCES = (0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
DRAWS = 200_000


def logits(scale: float, rows: int, seed: int = 0) -> Tensor:
    """Mean logits [rows, K] with one to three modes each, spread about `scale`; float64, exact in float32."""
    generator = torch.Generator().manual_seed(seed)
    position = torch.linspace(0.0, 1.0, BINS)
    waves = torch.sin(position * torch.rand(rows, 1, generator=generator) * 15.0)
    noise = 0.3 * torch.randn(rows, BINS, generator=generator)
    return exact_in_float32(scale * (waves + noise))


def measure_exact(figures: Figures, rows: int = 16) -> None:
    m = torch.cat([logits(scale, rows) for scale in LOGIT_SCALES])
    s2 = exact_in_float32(torch.logspace(-12, 8, len(m), dtype=torch.float64))
    label = torch.arange(len(m)) % BINS
    edges = exact_in_float32(torch.linspace(0.0, 3.0, BINS + 1).square() / 3.0)
    moment = torch.tensor([references.log_exponential_moment(value**0.5) for value in s2.tolist()]).double()
    expected = moment + torch.log(torch.exp(m).sum(-1)) - m[torch.arange(len(m)), label]
    measure(figures, "Jensen bound", lambda d: categorical.jensen_bound(m.to(d), s2.to(d), label), expected)
    # The split is a function of p: p itself starts out exact in float32 here.
    p = exact_in_float32(torch.softmax(m, -1))
    slopes = torch.stack([softmax_jacobian(row) for row in torch.log(p)])
    gini = 1.0 - p.square().sum(-1)
    delta = s2 * slopes.square().sum((-2, -1))
    measure(figures, "Gini total", lambda d: categorical.gini_decomposition(p.to(d), s2.to(d)).total, gini)
    measure(figures, "Gini delta term", lambda d: categorical.gini_decomposition(p.to(d), s2.to(d)).delta, delta)
    mean, variance = histogram_moments(p, edges)
    centres = 0.5 * (edges[1:] + edges[:-1])
    delta = s2 * (slopes.mT @ centres).square().sum(-1)
    measure(figures, "CR mean", lambda d: categorical.target_moments(p.to(d), s2.to(d), edges.to(d))[0], mean)
    for name, reference in (("total", variance), ("delta", delta), ("epistemic", delta * variance / (delta + variance))):
        measure(
            figures,
            f"CR variance, {name}",
            lambda d, name=name: getattr(categorical.target_moments(p.to(d), s2.to(d), edges.to(d))[1], name),
            reference,
        )
    _measure_histogram(figures, p, s2, edges)


def softmax_jacobian(row: Tensor) -> Tensor:
    """d softmax / d logits [K, K], by autograd."""
    jacobian: Tensor = torch.autograd.functional.jacobian(lambda z: torch.softmax(z, -1), row)
    return jacobian


def histogram_moments(p: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance [n] of a histogram by Gauss-Legendre quadrature inside every bin (exact for polynomials)."""
    nodes, weights = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(3))
    width = edges[1:] - edges[:-1]
    points = (0.5 * (edges[1:] + edges[:-1])).unsqueeze(-1) + 0.5 * width.unsqueeze(-1) * nodes
    inside = p.unsqueeze(-1) * (0.5 * weights)
    # p is rounded, so its sum is 1 only nearly: as it is served, the mean is not divided by it.
    mean = (inside * points).sum((-2, -1))
    return mean, (inside * (points - mean[:, None, None]).square()).sum((-2, -1))


def _measure_histogram(figures: Figures, p: Tensor, s2: Tensor, edges: Tensor) -> None:
    points = exact_in_float32(torch.linspace(-0.1, 3.1, 333))
    knots = np.concatenate([np.zeros((len(p), 1)), p.numpy().cumsum(-1)], -1)
    cdf = np.stack([np.interp(points, edges, row) for row in knots])
    measure(
        figures,
        "CR CDF",
        lambda d: Histogram(p.to(d), s2.to(d), edges.to(d)).cdf(points.to(d)),
        torch.from_numpy(cdf),
        lambda value, reference: (value - reference).abs().max().item(),
    )
    levels = torch.tensor([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
    measure(
        figures,
        "CR CDF at its quantiles",
        lambda d: _cdf_at_quantiles(p.to(d), edges, levels.to(d), knots),
        levels.double().expand(len(p), -1),
        lambda value, reference: (value - reference).abs().max().item(),
    )
