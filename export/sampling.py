"""Samples the posterior, to check the served closed forms against the quantities that they approximate.

Weights are drawn, not outputs: w_k = mean_k + a_k eps. For QR all levels share one eps ~ N(0, S), so that the quantile
curves move together; for CR every bin has its own eps. Full-size draws give the distribution. The variance of E[y | w]
is computed to first order, from small steps along the draws, because l is a first-order quantity as well. Effects are
drawn in export.sampled_effects.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from export import reading
from export.builder import Array
from export.graph import Networks
from export.options import Layout
from export.sampled_effects import sampled_variance
from ghostless.contract import metadata
from ghostless.heads.calibration import IDENTITY, apply_map
from ghostless.heads.closed_forms import normal, piecewise, split
from ghostless.heads.closed_forms.categorical import PROBIT
from ghostless.heads.closed_forms.saturation import saturated
from ghostless.heads.histogram import Histogram, HistogramHead
from ghostless.heads.predictive import CalibratedReading, KnotPredictive
from ghostless.heads.quantile import QuantileHead, WarpedMixture
from learning.checkpoint import Checkpoint
from learning.linear_pool import LinearPool

# QR's mixture is exact, except that a_k may differ inside a group. Allowed error for that, as a fraction of the
# target's range and as a probability.
MIXTURE = {metadata.MEAN: 2e-3, metadata.BINS: 5e-3}
# CR's probit temperature omits a term of order s^2 from E[softmax(z)]. Allowed error as a multiple of that term, which
# leaves room for the next order.
PROBIT_ORDERS = 2.0
# Allowed error of the sampling, in standard errors.
STANDARD_ERRORS = 5.0
# Step of numerical derivatives, as a fraction of a full-size draw; the error is of third order.
STEP = 1e-3
# A smaller fraction of V is within the rounding error of V in float32.
LEAST_SHARE = 1e-6
# Allowed error of float32 against float64, including the sums.
ROUNDING = 1e-3
_DRAWS_AT_ONCE = 250


@dataclass(frozen=True)
class SampledFigure:
    """The distance between a served value and its sampled counterpart, at the row where it is largest relative to the
    allowed distance.

    The unit is the target's range for the mean and a probability for bins; parts of the variance are relative errors.
    """

    name: str
    error: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed

    @classmethod
    def worst(cls, name: str, error: Tensor, allowed: Tensor) -> "SampledFigure":
        """error and allowed [n] or [n, ..], not negative. A NaN counts as infinite."""
        ratio = torch.nan_to_num(error / allowed, nan=torch.inf).flatten()
        place = int(ratio.argmax())
        return cls(name, float(error.flatten()[place]), float(allowed.flatten()[place]))


@dataclass(frozen=True)
class SampledNetwork:
    """Estimates from draws of one network's last layer, each with its standard error.

    mean [n] and masses [n, k - 1] between the graph's knots belong to the uncalibrated distribution. remainder
    [n, k - 1]: what the closed form of the masses omits. last_layer [n]: the variance of E[y | w] to first order, about
    the distribution with which it is served.
    """

    mean: tuple[Tensor, Tensor]
    masses: tuple[Tensor, Tensor]
    remainder: Tensor
    last_layer: tuple[Tensor, Tensor]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        checkpoint: Checkpoint,
        encoded: Mapping[str, Tensor],
        about: KnotPredictive,
        knots: Array,
        draws: int,
        seed: int,
    ) -> "SampledNetwork":
        generator = torch.Generator().manual_seed(seed)
        head = copy.deepcopy(checkpoint.model.head).double()
        phi = checkpoint.model.phi(encoded).double()
        onto = torch.from_numpy(reading.segments_onto(head.knots.numpy(), knots))
        # phi . eps with eps = L noise, S = L L'.
        moved = phi @ _root(head)
        parts = []
        for _ in range(draws // _DRAWS_AT_ONCE):
            if isinstance(head, QuantileHead):
                assert isinstance(about, WarpedMixture)
                move = (moved @ _noise(moved, _DRAWS_AT_ONCE, generator)).T
                masses, slope = _quantile_masses(head, phi, move), _quantile_slope(about, move)
            else:
                assert isinstance(about, Histogram)
                count = head.posterior.mean.shape[0]
                eps = moved @ _noise(moved, _DRAWS_AT_ONCE * count, generator)
                move = eps.unflatten(-1, (_DRAWS_AT_ONCE, count)).permute(1, 0, 2)
                masses, slope = _histogram_masses(head, phi, move), _histogram_slope(head, about, move)
            parts.append((piecewise.moments(masses, head.knots)[0], masses @ onto, slope.square()))
        mean, masses, squares = (torch.cat(values) for values in zip(*parts, strict=True))
        left_out = torch.zeros_like(masses[0])
        if isinstance(head, HistogramHead):
            left_out = PROBIT_ORDERS * _by_segment(head, _probit_remainder(head, phi)).abs() @ onto
        return cls(_estimate(mean), _estimate(masses), left_out, _estimate(squares))


def _estimate(drawn: Tensor) -> tuple[Tensor, Tensor]:
    """drawn [draws, ..] -> mean and its standard error."""
    return drawn.mean(0), drawn.std(0) / len(drawn) ** 0.5


def compare(
    networks: Networks,
    encoded: Sequence[Mapping[str, Tensor]],
    served: Mapping[str, Array],
    layout: Layout,
    draws: int,
    seed: int,
) -> list[SampledFigure]:
    """Compares served mean, bins and parts of the variance with `draws` samples. encoded: the rows, encoded for each
    network.

    The map belongs to the averaged distribution, so it is applied to the average of the draws.
    """
    weights = networks.weights or (1.0,)
    abouts = [_about(checkpoint, batch, bool(networks.weights)) for checkpoint, batch in _each(networks, encoded)]
    drawn = [
        SampledNetwork.of(checkpoint, batch, about, layout.knots, draws, seed)
        for (checkpoint, batch), about in zip(_each(networks, encoded), abouts, strict=True)
    ]
    expected = _distribution(drawn, weights, layout)
    figures = [
        SampledFigure.worst(name, (torch.from_numpy(served[name]) - value).abs() / unit, allowed / unit)
        for name, (value, allowed, unit) in expected.items()
        if name in served
    ]
    parts = _variance_parts(networks, encoded[0], abouts, drawn, layout, draws, seed)
    for name, (value, error, total) in parts.items():
        if name in served:
            unit = torch.maximum(value, LEAST_SHARE * total)
            allowed = ROUNDING + STANDARD_ERRORS * error / unit
            figures.append(SampledFigure.worst(name, (torch.from_numpy(served[name]) - value).abs() / unit, allowed))
    return figures


def _each(
    networks: Networks, encoded: Sequence[Mapping[str, Tensor]]
) -> Iterable[tuple[Checkpoint, Mapping[str, Tensor]]]:
    return zip(networks.checkpoints, encoded, strict=True)


@torch.no_grad()
def _about(checkpoint: Checkpoint, encoded: Mapping[str, Tensor], pooled: bool) -> KnotPredictive:
    """The distribution about which l is taken: the served one, or a pool's member without its map."""
    head, phi = copy.deepcopy(checkpoint.model.head).double(), checkpoint.model.phi(encoded).double()
    return head.uncalibrated(phi) if pooled else head.predict(phi)


def _distribution(
    drawn: Sequence[SampledNetwork], weights: Sequence[float], layout: Layout
) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Mean [n] and bins [n, b], each as the value, its allowed error, and the unit of both."""
    masses = sum(weight * one.masses[0] for weight, one in zip(weights, drawn, strict=True))
    error = sum(weight * one.masses[1] for weight, one in zip(weights, drawn, strict=True))
    left_out = sum(weight * one.remainder for weight, one in zip(weights, drawn, strict=True))
    mean_error = sum(weight * one.mean[1] for weight, one in zip(weights, drawn, strict=True))
    masses, error, left_out, mean_error = (torch.as_tensor(part) for part in (masses, error, left_out, mean_error))
    heights, steepest = torch.nn.functional.pad(masses.cumsum(-1), (1, 0)).clamp(0.0, 1.0), 1.0
    if layout.map_heights is not None:
        heights = apply_map(heights, torch.tensor(layout.map_heights, dtype=heights.dtype))
        steepest = float(np.diff(layout.map_heights).max()) * (len(layout.map_heights) - 1)
    knots, merge = torch.from_numpy(layout.knots), torch.from_numpy(layout.bins_of_segments())
    span = knots[-1] - knots[0]
    mixture = {name: value * (layout.head != "cr") for name, value in MIXTURE.items()}
    masses = heights.diff(dim=-1)
    mean = piecewise.moments(masses, knots)[0]
    distance = (0.5 * (knots[1:] + knots[:-1]) - mean.unsqueeze(-1)).abs()
    moved = steepest * (STANDARD_ERRORS * mean_error + (left_out * distance).sum(-1))
    spread = steepest * (STANDARD_ERRORS * error + left_out) @ merge
    return {
        metadata.MEAN: (mean, moved + (mixture[metadata.MEAN] + ROUNDING) * span, span),
        metadata.BINS: (masses @ merge, spread + mixture[metadata.BINS] + ROUNDING, torch.ones(())),
    }


def _variance_parts(
    networks: Networks,
    encoded: Mapping[str, Tensor],
    abouts: Sequence[KnotPredictive],
    drawn: Sequence[SampledNetwork],
    layout: Layout,
    draws: int,
    seed: int,
) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """The last layer's part, epistemic and epistemic_candidate, [n] each, as the value, its standard error, and V."""
    if networks.weights:
        (share, share_error), total = _pooled_share(networks, abouts, drawn, layout)
        last_layer, error = share * total, share_error * total
    else:
        (last_layer, error), total = drawn[0].last_layer, abouts[0].variance()
        share = None
    parts = {metadata.EPISTEMIC_LAST_LAYER: (last_layer, error, total)}
    nothing = torch.zeros_like(total), torch.zeros_like(total)
    effects, sampled = networks.effects, (nothing, nothing)
    if effects is not None:
        sampled = sampled_variance(effects, encoded, draws, seed)
    every = sampled[0][0]
    for name, (raw, raw_error) in zip((metadata.EPISTEMIC, metadata.EPISTEMIC_CANDIDATE), sampled, strict=True):
        shared = nothing[0]
        if effects is not None:
            shared = split.effects_part(total, every, effects.level, effects.gamma, raw)
        rest = total - shared
        own = saturated(last_layer, rest) if share is None else rest * share
        spread = shared * _relative(raw_error, raw) + own * _relative(error, last_layer)
        parts[name] = (shared + own, spread, total)
    return parts


def _pooled_share(
    networks: Networks, abouts: Sequence[KnotPredictive], drawn: Sequence[SampledNetwork], layout: Layout
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The share of a pool's variance that is due to its networks' posteriors and the distance between their means, with
    its standard error [n]; and the calibrated V [n]."""
    pool = LinearPool(tuple(abouts), torch.tensor(networks.weights, dtype=torch.float64))
    heights = torch.tensor(layout.map_heights or IDENTITY, dtype=torch.float64)
    mean = pool.mean()
    own, error = torch.zeros_like(mean), torch.zeros_like(mean)
    for weight, about, one in zip(networks.weights, abouts, drawn, strict=True):
        last_layer, own_error = one.last_layer
        own = own + weight * (saturated(last_layer, about.variance()) + (about.mean() - mean).square())
        error = error + weight * own_error
    whole = pool.epistemic() + pool.aleatoric()
    return (own / whole, error / whole), CalibratedReading(pool, torch.from_numpy(layout.knots), heights).variance()


def _relative(error: Tensor, value: Tensor) -> Tensor:
    return error / value.clamp(min=torch.finfo(value.dtype).tiny)


def _root(head: QuantileHead | HistogramHead) -> Tensor:
    """L [D, D] with S = L L'."""
    posterior = head.posterior
    root: Tensor = (
        posterior.cholesky() if posterior.covariance == "dense" else torch.linalg.cholesky(posterior.dense_covariance())
    )
    return root


def _noise(moved: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Standard normal draws [D, count]."""
    return torch.randn(moved.shape[1], count, generator=generator, dtype=moved.dtype)


def _quantile_masses(head: QuantileHead, phi: Tensor, move: Tensor) -> Tensor:
    """Masses [draws, n, k - 1] between the head's own knots. Each draw moves all levels by one eps: move [draws, n]."""
    mixture = head.uncalibrated(phi).mixture
    size = head.config.levels // head.config.groups
    places = mixture.centres.repeat_interleave(size, -1) + head.posterior.scales * move.unsqueeze(-1)
    sd = torch.sqrt(mixture.kernel + 1e-12).repeat_interleave(size, -1)
    inner = torch.stack([normal.cdf((z - places) / sd).mean(-1) for z in head.warp.reading()[1:-1]], -1)
    ends = torch.zeros_like(inner[..., :1]), torch.ones_like(inner[..., :1])
    return torch.cat([ends[0], inner, ends[1]], -1).diff(dim=-1)


def _quantile_slope(about: WarpedMixture, move: Tensor) -> Tensor:
    """Derivative of E[y] along each draw [draws, n]. E[y(z)] of a Gaussian is exact for a piecewise linear y:
    the integral of Phi((z - c) / sd) is sd (u Phi(u) + phi(u)), u = (z - c) / sd."""
    mixture, z, slopes = about.mixture, about.warp.z, about.warp.slopes()
    groups = mixture.centres.shape[-1]
    scales = mixture.scales.unflatten(0, (groups, -1)).mean(-1)

    def expected(step: float) -> Tensor:
        """E[y] minus a constant [draws, n]."""
        total = torch.zeros_like(move)
        for group in range(groups):
            sd = mixture.sd[:, group]
            centre = mixture.centres[:, group] + step * scales[group] * move
            u = (z - centre.unsqueeze(-1)) / sd.unsqueeze(-1)
            area = sd.unsqueeze(-1) * (u * normal.cdf(u) + normal.pdf(u))
            total = total - (area.diff(dim=-1) * slopes).sum(-1) / groups
        return total

    return (expected(STEP) - expected(-STEP)) / (2.0 * STEP)


def _histogram_masses(head: HistogramHead, phi: Tensor, move: Tensor) -> Tensor:
    """Masses [draws, n, k - 1] of the head's own segments. Each draw moves every logit by its own eps:
    move [draws, n, K]."""
    p = torch.softmax((head.posterior.outputs(phi) + move) / head.temperature, -1)
    return _by_segment(head, p)


def _histogram_slope(head: HistogramHead, about: Histogram, move: Tensor) -> Tensor:
    """Derivative of E[y] along each draw [draws, n], at the served probabilities written as a softmax."""
    tiny = torch.finfo(torch.float64).tiny
    logits = about.p[:, head.classes].clamp(min=tiny).log()

    def expected(step: float) -> Tensor:
        p = torch.softmax(logits + step * move / head.temperature, -1)
        return piecewise.moments(_by_segment(head, p), head.knots)[0]

    return (expected(STEP) - expected(-STEP)) / (2.0 * STEP)


def _probit_remainder(head: HistogramHead, phi: Tensor) -> Tensor:
    """E[softmax(z / T)] minus softmax(m / (T sqrt(1 + pi/8 s^2))), to first order in s^2: [n, K].

    With t^2 = s^2 / T^2 the second-order term of the expectation is t^2 p_k (sum p^2 - p_k); the probit temperature
    gives -pi/16 s^2 p_k (m_k - sum p m) / T instead.
    """
    m, s2 = head.posterior.outputs(phi) / head.temperature, head.posterior.variance(phi).unsqueeze(-1)
    p = torch.softmax(m, -1)
    expected = s2 / head.temperature**2 * p * (p.square().sum(-1, keepdim=True) - p)
    probit = -0.5 * PROBIT * s2 * p * (m - (p * m).sum(-1, keepdim=True))
    return expected - probit


def _by_segment(head: HistogramHead, p: Tensor) -> Tensor:
    """Probabilities of classes [.., K] as masses of segments [.., k - 1]."""
    return p.new_zeros(*p.shape[:-1], len(head.edges) - 1).index_copy(-1, head.classes, p)
