"""The posterior sampled, to check the served closed forms against what they stand for.

Weights are drawn, not outputs: w_k = mean_k + a_k eps for QR, one eps ~ N(0, S) shared by all levels (the quantile
curves move together); for CR an eps of its own for every bin.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from export.builder import Array
from export.options import Layout
from learning.checkpoint import Checkpoint
from learning.closed_forms import normal
from learning.model import HistogramHead, QuantileHead
from serving import metadata

# The QR forms are exact but for rounding and for a_k that differ inside a group. CR's probit temperature and delta
# method are approximations: what they may be off by (learning's bench shows the table over s^2 and logit scales).
APPROXIMATION = {
    "qr": {metadata.MEAN: 1e-4, metadata.EPISTEMIC: 2e-3, metadata.ALEATORIC: 2e-3, metadata.BINS: 1e-3},
    "cr": {metadata.MEAN: 0.02, metadata.EPISTEMIC: 0.15, metadata.ALEATORIC: 0.15, metadata.BINS: 0.03},
}
_DRAWS_AT_ONCE = 250


@dataclass(frozen=True)
class SampledFigure:
    """Largest distance over the rows between a served value and its sampled counterpart.

    Units: the target's range for the mean, the total variance for its parts, probability for bins. `allowed` is the
    closed form's own approximation error plus five standard errors of the sampling.
    """

    name: str
    error: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed


@torch.no_grad()
def compare(
    checkpoint: Checkpoint, encoded: dict[str, Tensor], served: dict[str, Array], layout: Layout, draws: int, seed: int
) -> list[SampledFigure]:
    """Served mean, variance split and bins of the given rows against `draws` posterior samples."""
    generator = torch.Generator().manual_seed(seed)
    head, phi = checkpoint.model.head, checkpoint.model.phi(encoded)
    edges = torch.from_numpy(layout.edges).float()
    chunks = [_DRAWS_AT_ONCE] * (draws // _DRAWS_AT_ONCE)
    sample = _quantile_draws if isinstance(head, QuantileHead) else _histogram_draws
    parts = [sample(head, phi, edges, count, generator) for count in chunks]
    mean, variance, bins = (torch.cat(values) for values in zip(*parts, strict=True))
    count = len(mean)
    epistemic, aleatoric = mean.var(0, correction=0), variance.mean(0)
    unit = float(layout.knots[-1] - layout.knots[0])
    total = epistemic + aleatoric
    root = count**0.5
    sampled = {
        metadata.MEAN: (mean.mean(0) / unit, mean.std(0) / root / unit),
        # The standard error of a variance of (nearly) normal draws.
        metadata.EPISTEMIC: (epistemic / total, epistemic * (2.0 / count) ** 0.5 / total),
        metadata.ALEATORIC: (aleatoric / total, variance.std(0) / root / total),
        metadata.BINS: (bins.mean(0), bins.std(0) / root),
    }
    scales: dict[str, Tensor | float] = {
        metadata.MEAN: unit,
        metadata.EPISTEMIC: total,
        metadata.ALEATORIC: total,
        metadata.BINS: 1.0,
    }
    approximation = APPROXIMATION[layout.head]
    return [
        SampledFigure(
            name,
            float((torch.from_numpy(served[name]) / scales.get(name, 1.0) - value).abs().max()),
            approximation[name] + 5.0 * float(error.max()),
        )
        for name, (value, error) in sampled.items()
        if name in served
    ]


def _weights(head: QuantileHead | HistogramHead, count: int, generator: torch.Generator) -> Tensor:
    """eps ~ N(0, S) of `count` draws, [D, count]."""
    factor: Tensor = torch.linalg.cholesky(head.posterior.dense_covariance().double())
    noise = torch.randn(factor.shape[0], count, generator=generator, dtype=torch.float64)
    return (factor @ noise).float()


def _quantile_draws(
    head: QuantileHead | HistogramHead, phi: Tensor, edges: Tensor, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """E[y | w] and Var(y | w) [draws, n], P(bin | w) [draws, n, bins]."""
    assert isinstance(head, QuantileHead)
    move = (phi @ _weights(head, draws, generator)).T.unsqueeze(-1)
    mixture = head.predict(phi)
    size = head.config.levels // head.config.groups
    places = mixture.centres.repeat_interleave(size, -1) + head.posterior.scales * move
    sd = torch.sqrt(mixture.kernel + 1e-12).repeat_interleave(size, -1)
    variance = places.var(-1, correction=0) + mixture.kernel.mean(-1)
    cdf = torch.stack([normal.cdf((edge - places) / sd).mean(-1) for edge in edges[1:-1]], -1)
    ends = torch.zeros_like(cdf[..., :1]), torch.ones_like(cdf[..., :1])
    return places.mean(-1), variance, torch.cat([ends[0], cdf, ends[1]], -1).diff(dim=-1)


def _histogram_draws(
    head: QuantileHead | HistogramHead, phi: Tensor, edges: Tensor, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    assert isinstance(head, HistogramHead)
    m = head.posterior.outputs(phi)
    move = phi @ _weights(head, draws * m.shape[-1], generator)
    p = torch.softmax(m + move.unflatten(-1, (draws, m.shape[-1])).permute(1, 0, 2), -1)
    centres, widths = 0.5 * (head.edges[1:] + head.edges[:-1]), head.edges.diff()
    mean = p @ centres
    variance = p @ (centres.square() + widths.square() / 12.0) - mean.square()
    merge = (head.edges[:-1, None] >= edges[:-1] - 1e-6) & (head.edges[1:, None] <= edges[1:] + 1e-6)
    return mean, variance, p @ merge.float()
