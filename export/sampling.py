"""The posterior sampled, to check the served closed forms against what they stand for.

Weights are drawn, not outputs: w_k = mean_k + a_k eps for QR, one eps ~ N(0, S) shared by all levels (the quantile
curves move together); for CR an eps of its own for every bin.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from export import reading
from export.builder import Array
from export.graph import Networks
from export.options import Layout
from ghostless.contract import metadata
from ghostless.heads.calibration import apply_map
from ghostless.heads.closed_forms import normal, piecewise
from ghostless.heads.histogram import HistogramHead
from ghostless.heads.quantile import QuantileHead
from learning.checkpoint import Checkpoint

# What the closed forms may be off by. QR's mixture is exact, but for a_k that differ inside a group, and its split is
# linear in the weights; CR's probit temperature and delta method are approximations (learning's bench has the table
# over s^2 and logits).
APPROXIMATION = {
    "qr": {metadata.MEAN: 2e-3, metadata.EPISTEMIC: 0.1, metadata.ALEATORIC: 0.1, metadata.BINS: 5e-3},
    "cr": {metadata.MEAN: 0.02, metadata.EPISTEMIC: 0.15, metadata.ALEATORIC: 0.15, metadata.BINS: 0.03},
}
_DRAWS_AT_ONCE = 250

# Of each draw and row: E[y | w] and Var(y | w) [draws, n], masses between the graph's knots [draws, n, k - 1].
Draws = tuple[Tensor, Tensor, Tensor]


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
class SampledOutputs:
    """Moments [n] and masses [n, k - 1] of the uncalibrated distribution, estimated from draws, each with its standard
    error."""

    mean: tuple[Tensor, Tensor]
    epistemic: tuple[Tensor, Tensor]
    aleatoric: tuple[Tensor, Tensor]
    masses: tuple[Tensor, Tensor]

    @classmethod
    @torch.no_grad()
    def of(
        cls, checkpoint: Checkpoint, encoded: dict[str, Tensor], knots: Array, draws: int, seed: int
    ) -> "SampledOutputs":
        generator = torch.Generator().manual_seed(seed)
        head, phi = checkpoint.model.head, checkpoint.model.phi(encoded)
        chunks = [_DRAWS_AT_ONCE] * (draws // _DRAWS_AT_ONCE)
        sample = _quantile_draws if isinstance(head, QuantileHead) else _histogram_draws
        own = head.knots.double().numpy()
        onto = torch.from_numpy(reading.segments_onto(own, knots)).float()
        parts = [_read(sample(head, phi, count, generator), head.knots, onto) for count in chunks]
        mean, variance, masses = (torch.cat(values) for values in zip(*parts, strict=True))
        count, root = len(mean), len(mean) ** 0.5
        epistemic = mean.var(0, correction=0)
        return cls(
            (mean.mean(0), mean.std(0) / root),
            # The standard error of a variance of (nearly) normal draws.
            (epistemic, epistemic * (2.0 / count) ** 0.5),
            (variance.mean(0), variance.std(0) / root),
            (masses.mean(0), masses.std(0) / root),
        )

    @classmethod
    def pooled(cls, members: Sequence["SampledOutputs"], weights: Sequence[float]) -> "SampledOutputs":
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
            average(member.masses for member in members),
        )


def compare(
    networks: Networks, encoded: dict[str, Tensor], served: dict[str, Array], layout: Layout, draws: int, seed: int
) -> list[SampledFigure]:
    """Served mean, variance split and bins of the given rows against `draws` posterior samples of every network.

    The map is one of the averaged distribution, so it is applied to the average of the draws; the split is compared as
    shares of the total.
    """
    members = [SampledOutputs.of(checkpoint, encoded, layout.knots, draws, seed) for checkpoint in networks.checkpoints]
    drawn = SampledOutputs.pooled(members, networks.weights or (1.0,))
    heights, steepest = torch.nn.functional.pad(drawn.masses[0].cumsum(-1), (1, 0)).clamp(0.0, 1.0), 1.0
    if layout.map_heights is not None:
        heights = apply_map(heights, torch.tensor(layout.map_heights))
        steepest = float(np.diff(layout.map_heights).max()) * (len(layout.map_heights) - 1)
    masses, knots = heights.diff(dim=-1), torch.from_numpy(layout.knots).float()
    mean, total = piecewise.moments(masses, knots)
    span = float(layout.knots[-1] - layout.knots[0])
    merge = torch.from_numpy(layout.bins_of_segments()).float()
    whole = drawn.epistemic[0] + drawn.aleatoric[0]
    # Expected value, its standard error, and the unit of both.
    expected = {
        metadata.MEAN: (mean, steepest * drawn.mean[1], torch.tensor(span)),
        metadata.EPISTEMIC: (total * drawn.epistemic[0] / whole, total * drawn.epistemic[1] / whole, total),
        metadata.ALEATORIC: (total * drawn.aleatoric[0] / whole, total * drawn.aleatoric[1] / whole, total),
        metadata.BINS: (masses @ merge, steepest * drawn.masses[1] @ merge, torch.ones(())),
    }
    approximation = APPROXIMATION["qr" if layout.head == "qr" else "cr"]
    return [
        SampledFigure(
            name,
            float(((torch.from_numpy(served[name]) - value) / unit).abs().max()),
            approximation[name] + 5.0 * float((error / unit).max()),
        )
        for name, (value, error, unit) in expected.items()
        if name in served
    ]


def _weights(head: QuantileHead | HistogramHead, count: int, generator: torch.Generator) -> Tensor:
    """eps ~ N(0, S) of `count` draws, [D, count]."""
    posterior = copy.deepcopy(head.posterior).double()
    if posterior.covariance == "dense":
        factor: Tensor = posterior.cholesky()
    else:
        factor = torch.linalg.cholesky(posterior.dense_covariance())
    noise = torch.randn(factor.shape[0], count, generator=generator, dtype=torch.float64)
    return (factor @ noise).float()


def _quantile_draws(head: QuantileHead | HistogramHead, phi: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Masses [draws, n, k - 1] between the head's own knots. Each draw moves all levels by one eps."""
    assert isinstance(head, QuantileHead)
    move = (phi @ _weights(head, draws, generator)).T.unsqueeze(-1)
    mixture = head.uncalibrated(phi).mixture
    size = head.config.levels // head.config.groups
    places = mixture.centres.repeat_interleave(size, -1) + head.posterior.scales * move
    sd = torch.sqrt(mixture.kernel + 1e-12).repeat_interleave(size, -1)
    inner = torch.stack([normal.cdf((z - places) / sd).mean(-1) for z in head.warp.reading()[1:-1]], -1)
    ends = torch.zeros_like(inner[..., :1]), torch.ones_like(inner[..., :1])
    return torch.cat([ends[0], inner, ends[1]], -1).diff(dim=-1)


def _histogram_draws(head: QuantileHead | HistogramHead, phi: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """The same; each draw moves every logit by an eps of its own."""
    assert isinstance(head, HistogramHead)
    m = head.posterior.outputs(phi)
    move = phi @ _weights(head, draws * m.shape[-1], generator)
    logits = m + move.unflatten(-1, (draws, m.shape[-1])).permute(1, 0, 2)
    p = torch.softmax(logits / head.temperature, -1)
    return p.new_zeros(*p.shape[:-1], len(head.edges) - 1).index_copy(-1, head.classes, p)


def _read(masses: Tensor, own: Tensor, onto: Tensor) -> Draws:
    """Masses between a head's own knots [k'], and `onto` [k' - 1, k - 1], which leads to the graph's."""
    mean, variance = piecewise.moments(masses, own)
    return mean, variance, masses @ onto
