"""The posterior sampled, to check the served closed forms against what they stand for.

Weights are drawn, not outputs: w_k = mean_k + a_k eps for QR, one eps ~ N(0, S) shared by all levels (the quantile
curves move together); for CR an eps of its own for every bin.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from export.builder import Array
from export.graph import Networks
from export.options import Layout
from ghostless.contract import metadata
from ghostless.heads.closed_forms import normal
from ghostless.heads.histogram import HistogramHead
from ghostless.heads.quantile import QuantileHead
from learning.checkpoint import Checkpoint

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


@dataclass(frozen=True)
class Sampled:
    """Moments [n] and bins [n, b] estimated from draws, each with its standard error."""

    mean: tuple[Tensor, Tensor]
    epistemic: tuple[Tensor, Tensor]
    aleatoric: tuple[Tensor, Tensor]
    bins: tuple[Tensor, Tensor]

    @classmethod
    @torch.no_grad()
    def of(cls, checkpoint: Checkpoint, encoded: dict[str, Tensor], edges: Tensor, draws: int, seed: int) -> "Sampled":
        generator = torch.Generator().manual_seed(seed)
        head, phi = checkpoint.model.head, checkpoint.model.phi(encoded)
        chunks = [_DRAWS_AT_ONCE] * (draws // _DRAWS_AT_ONCE)
        sample = _quantile_draws if isinstance(head, QuantileHead) else _histogram_draws
        parts = [sample(head, phi, edges, count, generator) for count in chunks]
        mean, variance, bins = (torch.cat(values) for values in zip(*parts, strict=True))
        count, root = len(mean), len(mean) ** 0.5
        epistemic = mean.var(0, correction=0)
        return cls(
            (mean.mean(0), mean.std(0) / root),
            # The standard error of a variance of (nearly) normal draws.
            (epistemic, epistemic * (2.0 / count) ** 0.5),
            (variance.mean(0), variance.std(0) / root),
            (bins.mean(0), bins.std(0) / root),
        )

    @classmethod
    def pooled(cls, members: Sequence["Sampled"], weights: Sequence[float]) -> "Sampled":
        """Of the mixture in which a member is drawn first."""

        def average(parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
            values, errors = zip(*parts, strict=True)
            total = sum(weight * value for weight, value in zip(weights, values, strict=True))
            spread = sum((weight * error).square() for weight, error in zip(weights, errors, strict=True))
            return torch.as_tensor(total), torch.as_tensor(spread).sqrt()

        mean = average(member.mean for member in members)
        within = average(member.epistemic for member in members)
        apart = [(member.mean[0] - mean[0]).square() for member in members]
        # To first order in the means' errors.
        slack = [2.0 * (member.mean[0] - mean[0]).abs() * member.mean[1] for member in members]
        between = average(zip(apart, slack, strict=True))
        return cls(
            mean,
            (within[0] + between[0], within[1] + between[1]),
            average(member.aleatoric for member in members),
            average(member.bins for member in members),
        )


def compare(
    networks: Networks, encoded: dict[str, Tensor], served: dict[str, Array], layout: Layout, draws: int, seed: int
) -> list[SampledFigure]:
    """Served mean, variance split and bins of the given rows against `draws` posterior samples of every network."""
    edges = torch.from_numpy(layout.edges).float()
    members = [Sampled.of(checkpoint, encoded, edges, draws, seed) for checkpoint in networks.checkpoints]
    drawn = Sampled.pooled(members, networks.weights or (1.0,))
    unit = torch.tensor(float(layout.knots[-1] - layout.knots[0]))
    total = drawn.epistemic[0] + drawn.aleatoric[0]
    scaled = {
        metadata.MEAN: (*drawn.mean, unit),
        metadata.EPISTEMIC: (*drawn.epistemic, total),
        metadata.ALEATORIC: (*drawn.aleatoric, total),
        metadata.BINS: (*drawn.bins, torch.ones(())),
    }
    approximation = APPROXIMATION["qr" if layout.head == "qr" else "cr"]
    return [
        SampledFigure(
            name,
            float(((torch.from_numpy(served[name]) - value) / scale).abs().max()),
            approximation[name] + 5.0 * float((error / scale).max()),
        )
        for name, (value, error, scale) in scaled.items()
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
    mixture = head.mixture(head.posterior.outputs(phi), phi)
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
