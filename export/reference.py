"""What the graph must answer, computed by torch from the closed forms: the other side of every verification."""

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from export.builder import Array
from export.graph import Networks
from export.options import Layout
from ghostless.contract import metadata
from ghostless.heads.closed_forms import laplace, piecewise
from ghostless.heads.closed_forms.quantile_mixture import QuantileMixture
from ghostless.heads.histogram import Histogram, HistogramHead
from ghostless.heads.predictive import Predictive
from ghostless.heads.quantile import QuantileHead
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.evaluation import censored_cdf
from learning.linear_pool import LinearPool

Head = QuantileHead | HistogramHead


@torch.no_grad()
def answer(networks: Networks, columns: Mapping[str, Array], layout: Layout) -> dict[str, Array]:
    """The layout's outputs for raw feature columns [n] each. The head's closed forms are computed in float64, so what
    differs from them is the graph's own rounding."""
    encoded = [encode(checkpoint, columns) for checkpoint in networks.checkpoints]
    knots, edges, levels, grid = (
        torch.from_numpy(values) for values in (layout.knots, layout.edges, layout.levels, layout.grid)
    )
    if networks.members == 1 or networks.weights:
        phis = [
            checkpoint.model.phi(batch).double()
            for checkpoint, batch in zip(networks.checkpoints, encoded, strict=True)
        ]
        heads = [_exact(checkpoint.model.head) for checkpoint in networks.checkpoints]
        phi, head = phis[0], heads[0]
        predictive: Predictive = head.predict(phi)
        if networks.weights:
            members = tuple(own.predict(features) for own, features in zip(heads, phis, strict=True))
            predictive = LinearPool(members, torch.tensor(networks.weights, dtype=torch.float64))
        outputs = {
            metadata.MEAN: predictive.mean(),
            metadata.ALEATORIC: predictive.aleatoric(),
            metadata.EPISTEMIC: predictive.epistemic(),
            metadata.LOGIT_VARIANCE: predictive.logit_variance,
            metadata.CDF: censored_cdf(predictive, knots),
        }
        if isinstance(predictive, Histogram):
            if len(edges) == len(knots):
                outputs[metadata.BINS] = predictive.p
            gini = predictive.gini()
            outputs[metadata.CATEGORICAL_ALEATORIC] = gini.aleatoric
            outputs[metadata.CATEGORICAL_EPISTEMIC] = gini.epistemic
            outputs[metadata.CATEGORICAL_EPISTEMIC_DELTA] = gini.delta
        if len(grid):
            outputs[metadata.DENSITY] = predictive.density(grid)
        if metadata.EMG_DENSITY in layout.outputs and isinstance(head, QuantileHead):
            outputs[metadata.EMG_DENSITY] = emg_density(head, phi, grid)
    else:
        outputs = _members(networks, encoded, knots, grid, len(edges) - 1)
    cdf = outputs[metadata.CDF]
    outputs.setdefault(metadata.BINS, cdf[:, (knots - edges[:, None]).abs().argmin(-1)].diff(dim=-1))
    quantiles = piecewise.quantiles(cdf, knots, levels)
    outputs[metadata.QUANTILES] = quantiles
    if metadata.UNKNOWN_IDS in layout.outputs:
        # Row 0 of every table is the out-of-vocabulary row.
        outputs[metadata.UNKNOWN_IDS] = torch.stack(
            [encoded[0][name] == 0 for name in networks.first.schema.id_names], -1
        )
    return {name: outputs[name].float().numpy() for name in layout.outputs}


def steepness(cdf: Array, layout: Layout, within: float) -> Array:
    """How far returned quantiles move per unit of their level, [n, q]: the steeper of a step of `within` in level down
    and one up. cdf [n, k + 1]."""
    knots, asked = torch.from_numpy(layout.knots), torch.from_numpy(layout.levels)
    exact = torch.from_numpy(cdf).double()
    below, at, above = (piecewise.quantiles(exact, knots, asked + step) for step in (-within, 0.0, within))
    steps: Array = (torch.maximum(above - at, at - below) / within).numpy()
    return steps


def _exact(head: Head) -> Head:
    return copy.deepcopy(head).double()


def encode(checkpoint: Checkpoint, columns: Mapping[str, Array]) -> dict[str, Tensor]:
    rows = len(next(iter(columns.values())))
    table = Table(checkpoint.schema, columns, np.zeros(rows, np.float32))
    return {name: torch.from_numpy(values) for name, values in checkpoint.encoding.encode(table).items()}


def emg_density(head: QuantileHead, phi: Tensor, grid: Tensor) -> Tensor:
    """Proposition 1 averaged over the levels, [n, g]."""
    posterior = head.posterior
    s = (torch.sqrt(posterior.variance(phi)).unsqueeze(-1) * posterior.scales).clamp(min=1e-6).unsqueeze(1)
    delta = grid.unsqueeze(-1) - posterior.outputs(phi).unsqueeze(1)
    return laplace.density(delta, s, head.levels, torch.tensor(head.config.sigma)).mean(-1)


def thinned_phi(checkpoint: Checkpoint, encoded: Mapping[str, Tensor], masks: tuple[Array, ...], sample: int) -> Tensor:
    """phi of one MC-dropout sample: the backbone's units thinned by that sample's masks."""
    model = checkpoint.model
    x, novelty = model.towers(encoded)
    residual = model.backbone.kind == "spectral-residual"
    h: Tensor = x
    for index, layer in enumerate(model.backbone.layers):
        branch = layer(h)
        if index or not residual:
            branch = torch.relu(branch) * torch.from_numpy(masks[index][sample])
        h = h + branch if index and residual else branch
    return torch.cat((h, x, novelty) if model.backbone.raw else (h, novelty), -1)


def _dropped_phi(checkpoint: Checkpoint, encoded: Mapping[str, Tensor]) -> Tensor:
    """phi of one pass with torch's own dropout left on."""
    dropout = checkpoint.model.backbone.dropout
    dropout.train()
    try:
        return checkpoint.model.phi(encoded)
    finally:
        dropout.eval()


def _members(
    networks: Networks, encoded: list[dict[str, Tensor]], knots: Tensor, grid: Tensor, bins: int
) -> dict[str, Tensor]:
    """Mixture of members; epistemic is their disagreement. Each member has the vocabulary of its own training part."""
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
    phis = [phi.double() for phi in phis]
    each = [head.predict(phi) for head, phi in zip(heads, phis, strict=True)]
    means = torch.stack([predictive.mean() for predictive in each])
    logits = torch.stack(
        [
            predictive.centres if isinstance(predictive, QuantileMixture) else head.posterior.outputs(phi)
            for predictive, head, phi in zip(each, heads, phis, strict=True)
        ]
    )
    outputs = {
        metadata.MEAN: means.mean(0),
        metadata.EPISTEMIC: means.var(0, correction=0),
        metadata.ALEATORIC: torch.stack([predictive.aleatoric() for predictive in each]).mean(0),
        metadata.LOGIT_VARIANCE: logits.var(0, correction=0).mean(-1),
        metadata.CDF: torch.stack([censored_cdf(predictive, knots) for predictive in each]).mean(0),
    }
    if len(grid):
        outputs[metadata.DENSITY] = torch.stack([predictive.density(grid) for predictive in each]).mean(0)
    histograms = [predictive.p for predictive in each if isinstance(predictive, Histogram)]
    if histograms:
        p = torch.stack(histograms)
        if p.shape[-1] == bins:
            outputs[metadata.BINS] = p.mean(0)
        own = 1.0 - p.square().sum(-1).mean(0)
        disagreement = p.var(0, correction=0).sum(-1)
        outputs[metadata.CATEGORICAL_ALEATORIC] = own
        outputs[metadata.CATEGORICAL_EPISTEMIC] = disagreement
        outputs[metadata.CATEGORICAL_EPISTEMIC_DELTA] = disagreement
    return outputs
