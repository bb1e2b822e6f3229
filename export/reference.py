"""The expected outputs of a graph, computed by torch from the closed forms, for verification."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from export.builder import Array
from export.emg_nodes import warped_grid
from export.member_nodes import LEAST_SHARE
from export.options import Layout
from ghostless.contract import metadata
from ghostless.heads.calibration import IDENTITY, apply_map
from ghostless.heads.closed_forms import laplace, piecewise
from ghostless.heads.effect_variance import RowEffects
from ghostless.heads.histogram import Histogram, HistogramHead
from ghostless.heads.predictive import CalibratedReading, KnotPredictive, read_heights
from ghostless.heads.quantile import QuantileHead, WarpedMixture
from learning.backbone import activate
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.linear_pool import LinearPool

if TYPE_CHECKING:
    # graph.py imports this module, through foreign_backbone.py.
    from export.graph import Networks

TrainedHead = QuantileHead | HistogramHead


@torch.no_grad()
def answer(networks: "Networks", columns: Mapping[str, Array], layout: Layout) -> dict[str, Array]:
    """The layout's outputs for raw feature columns [n] each.

    The head's closed forms are computed in float64, so differences are rounding errors of the graph.
    """
    encoded = [encode(checkpoint, columns) for checkpoint in networks.checkpoints]
    knots, levels, grid = (torch.from_numpy(values) for values in (layout.knots, layout.levels, layout.grid))
    if networks.members == 1 or networks.weights:
        phis = [
            checkpoint.model.phi(batch).double()
            for checkpoint, batch in zip(networks.checkpoints, encoded, strict=True)
        ]
        heads = [_exact(checkpoint.model.head) for checkpoint in networks.checkpoints]
        phi, head = phis[0], heads[0]
        effects = _row_effects(networks, encoded[0])
        predictive: KnotPredictive = head.predict(phi, effects)
        if networks.weights:
            members = tuple(own.uncalibrated(features) for own, features in zip(heads, phis, strict=True))
            pool = LinearPool(members, torch.tensor(networks.weights, dtype=torch.float64))
            predictive = CalibratedReading(pool, knots, _map(layout), effects)
        outputs = {
            metadata.MEAN: predictive.mean(),
            metadata.ALEATORIC: predictive.aleatoric(),
            metadata.EPISTEMIC: predictive.epistemic(),
            metadata.EPISTEMIC_CANDIDATE: predictive.epistemic_candidate(),
            metadata.EPISTEMIC_LAST_LAYER: predictive.last_layer_variance(),
            metadata.LOGIT_VARIANCE: predictive.logit_variance,
            metadata.CDF: predictive.heights,
        }
        if isinstance(predictive, Histogram):
            gini = predictive.gini()
            outputs[metadata.CATEGORICAL_ALEATORIC] = gini.aleatoric
            outputs[metadata.CATEGORICAL_EPISTEMIC] = gini.epistemic
            outputs[metadata.CATEGORICAL_EPISTEMIC_DELTA] = gini.delta
        if metadata.EMG_DENSITY in layout.outputs and isinstance(head, QuantileHead):
            outputs[metadata.EMG_DENSITY] = emg_density(head, phi, layout.grid)
    else:
        outputs = _members(networks, encoded, layout)
    heights = outputs[metadata.CDF]
    masses = heights.diff(dim=-1)
    outputs[metadata.BINS] = _bins(heights, layout)
    outputs[metadata.ATOMS] = masses[:, knots.diff() == 0]
    outputs[metadata.DENSITY] = piecewise.density(masses, knots, grid)
    outputs[metadata.QUANTILES] = piecewise.quantiles(heights, knots, levels)
    if metadata.UNKNOWN_IDS in layout.outputs:
        # Row 0 of every table is the out-of-vocabulary row.
        outputs[metadata.UNKNOWN_IDS] = torch.stack(
            [encoded[0][name] == 0 for name in networks.first.schema.id_names], -1
        )
    return {name: outputs[name].float().numpy() for name in layout.outputs}


def _bins(heights: Tensor, layout: Layout) -> Tensor:
    """P(l <= y < u) [n, b], the last including its upper edge: from F(edge-), not from the graph's own table."""
    knots, edges = torch.from_numpy(layout.knots), torch.from_numpy(layout.edges)
    before = piecewise.interpolate(heights, knots, edges, before=True)
    return torch.cat([before[:, :-1], heights[:, -1:]], -1).diff(dim=-1)


def _map(layout: Layout) -> Tensor:
    return torch.tensor(layout.map_heights or IDENTITY, dtype=torch.float64)


def steepness(cdf: Array, layout: Layout, within: Array) -> Array:
    """How far returned quantiles move per unit of their level, [n, q]: the steeper of two steps, by `within` [q] down
    and up in level. cdf [n, k]."""
    knots, levels, step = (torch.from_numpy(values) for values in (layout.knots, layout.levels, within))
    exact = torch.from_numpy(cdf).double()
    below, at, above = (piecewise.quantiles(exact, knots, place) for place in (levels - step, levels, levels + step))
    steps: Array = (torch.maximum(above - at, at - below) / step).numpy()
    return steps


def _row_effects(networks: "Networks", encoded: Mapping[str, Tensor]) -> RowEffects | None:
    if networks.effects is None:
        return None
    effects = networks.effects(encoded)
    return replace(effects, raw=effects.raw.double(), candidate=effects.candidate.double())


def _exact(head: TrainedHead) -> TrainedHead:
    return copy.deepcopy(head).double()


def encode(checkpoint: Checkpoint, columns: Mapping[str, Array]) -> dict[str, Tensor]:
    rows = len(next(iter(columns.values())))
    table = Table(checkpoint.schema, columns, np.zeros(rows, np.float32))
    return {name: torch.from_numpy(values) for name, values in checkpoint.encoding.encode(table).items()}


def emg_density(head: QuantileHead, phi: Tensor, grid: Array) -> Tensor:
    """Proposition 1 averaged over the levels, as a density of the target: [n, g]."""
    posterior = head.posterior
    s = (torch.sqrt(posterior.variance(phi)).unsqueeze(-1) * posterior.scales).clamp(min=1e-6).unsqueeze(1)
    z, stretch = (torch.from_numpy(values) for values in warped_grid(head, grid))
    delta = z.unsqueeze(-1) - posterior.outputs(phi).unsqueeze(1)
    return laplace.density(delta, s, head.levels, torch.tensor(head.config.sigma)).mean(-1) * stretch


def thinned_phi(checkpoint: Checkpoint, encoded: Mapping[str, Tensor], masks: tuple[Array, ...], sample: int) -> Tensor:
    """phi of one MC-dropout sample, with the backbone's units multiplied by that sample's masks."""
    model = checkpoint.model
    backbone = model.backbone
    inputs = backbone.expand(model.towers(encoded))
    h: Tensor = inputs
    for index, layer in enumerate(backbone.layers):
        branch = layer(h)
        if index or not backbone.residual:
            branch = activate(branch, backbone.activation) * torch.from_numpy(masks[index][sample])
        h = h + branch if index and backbone.residual else branch
    return torch.cat((h, inputs), -1) if backbone.raw else h


def _dropped_phi(checkpoint: Checkpoint, encoded: Mapping[str, Tensor]) -> Tensor:
    """phi of one pass with torch's own dropout."""
    dropout = checkpoint.model.backbone.dropout
    dropout.train()
    try:
        return checkpoint.model.phi(encoded)
    finally:
        dropout.eval()


def member_predictives(networks: "Networks", encoded: list[dict[str, Tensor]]) -> list[tuple[KnotPredictive, Tensor]]:
    """For every member or pass, its distribution without a map, and the values from which its logit variance is
    computed: the centres of QR, the logits of CR. Each member has the vocabulary of its own training part."""
    first = networks.first
    if networks.passes:
        phis = [_dropped_phi(first, encoded[0]) for _ in range(networks.passes)]
        heads = [_exact(first.model.head)] * networks.passes
    elif networks.masks:
        phis = [thinned_phi(first, encoded[0], networks.masks, sample) for sample in range(networks.members)]
        heads = [_exact(first.model.head)] * networks.members
    else:
        phis = [checkpoint.model.phi(batch) for checkpoint, batch in zip(networks.checkpoints, encoded, strict=True)]
        heads = [_exact(checkpoint.model.head) for checkpoint in networks.checkpoints]
    members: list[tuple[KnotPredictive, Tensor]] = []
    for head, phi in zip(heads, (phi.double() for phi in phis), strict=True):
        predictive = head.uncalibrated(phi)
        if isinstance(predictive, WarpedMixture):
            members.append((predictive, predictive.mixture.centres))
        else:
            members.append((predictive, head.posterior.outputs(phi) / head.temperature))
    return members


def _members(networks: "Networks", encoded: list[dict[str, Tensor]], layout: Layout) -> dict[str, Tensor]:
    """The members' average, calibrated; epistemic is their disagreement, as a fraction of the average's variance."""
    knots = torch.from_numpy(layout.knots)
    members = member_predictives(networks, encoded)
    masses = torch.stack([read_heights(predictive, knots) for predictive, _ in members]).diff(dim=-1)
    average = masses.mean(0)
    cumulated = torch.nn.functional.pad(average.cumsum(-1), (1, 0))
    heights = cumulated if layout.map_heights is None else apply_map(cumulated, _map(layout))
    mean, total = piecewise.moments(heights.diff(dim=-1), knots)
    means = torch.stack([piecewise.moments(own, knots)[0] for own in masses])
    whole = piecewise.moments(average, knots)[1]
    share = (means.var(0, correction=0) / whole.clamp(min=torch.finfo(whole.dtype).tiny)).clamp(max=1.0)
    if networks.share_bins or networks.head == "qr":
        compared = torch.stack([raw for _, raw in members])
    else:
        compared = torch.log(masses + LEAST_SHARE)
    outputs = {
        metadata.MEAN: mean,
        metadata.EPISTEMIC: total * share,
        metadata.EPISTEMIC_CANDIDATE: total * share,
        metadata.EPISTEMIC_LAST_LAYER: torch.zeros_like(total),
        metadata.ALEATORIC: total * (1.0 - share),
        metadata.LOGIT_VARIANCE: compared.var(0, correction=0).mean(-1),
        metadata.CDF: heights,
    }
    if networks.head == "cr":
        disagreement = masses.var(0, correction=0).sum(-1)
        outputs[metadata.CATEGORICAL_ALEATORIC] = 1.0 - masses.square().sum(-1).mean(0)
        outputs[metadata.CATEGORICAL_EPISTEMIC] = disagreement
        outputs[metadata.CATEGORICAL_EPISTEMIC_DELTA] = disagreement
    return outputs
