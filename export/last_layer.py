"""The last layer of one trained network as plain weights, and the scales that its phi is written in.

The mean weights are turned, before they are written, into whatever basis the head wants its outputs in; of the
posterior's covariance S = diag(d) + U U' the low-rank factor rides along as more columns of the same product, and d as
the scale of phi's columns: so the posterior costs a few columns and a sum of squares instead of a matrix.
"""

from dataclasses import dataclass

import numpy as np

from export import features
from export.builder import Array
from export.errors import UnsupportedModelError
from learning.checkpoint import Checkpoint

# Of the largest entry of d, below which an entry is taken for this much: nothing, even times the square of the largest
# input (FARTHEST), and far from the ends of float32.
_LEAST_VARIANCE = 1e-24


@dataclass(frozen=True)
class LastLayer:
    """phi [n, D] -> outputs, with phi's columns in the graph's order and multiplied by `phi_scales`.

    weight [D, K], bias [K]: posterior means. factor [D, r]: U of S = diag(d) + U U', where r may be 0; None for a
    deterministic model. has_diagonal: whether there is a d; for phi as it is scaled it is 1. scales [K]: a_k.
    """

    weight: Array
    bias: Array
    factor: Array | None
    has_diagonal: bool
    scales: Array


def last_layer(checkpoint: Checkpoint) -> LastLayer:
    """The posterior, its rows permuted to the graph's phi = [f, input vector]."""
    model = checkpoint.model
    posterior = model.head.posterior
    order, columns = _phi_order(checkpoint), phi_scales(checkpoint)[:, None]
    weight = (posterior.mean.detach().numpy().T[order] / columns).astype(np.float32)
    bias, scales = posterior.bias.detach().numpy(), posterior.scales.detach().numpy()
    if posterior.covariance is None:
        return LastLayer(weight, bias, None, False, scales)
    if posterior.covariance == "per-output":
        raise UnsupportedModelError(
            "a per-output covariance is for comparison only and has no served graph; train with --covariance lowrank"
        )
    if posterior.covariance == "dense":
        return LastLayer(weight, bias, posterior.cholesky().detach().numpy()[order], False, scales)
    factor = np.zeros((len(order), 0), np.float32)
    if posterior.covariance == "lowrank":
        factor = (posterior.factor().detach().numpy()[order] / columns).astype(np.float32)
    return LastLayer(weight, bias, factor, bool(posterior.diagonal().any()), scales)


def phi_scales(checkpoint: Checkpoint) -> Array:
    """What the columns of the graph's phi are multiplied by, [D]: sqrt(d) of S = diag(d) + U U', else 1.

    In single precision they are folded into tables and weights.
    """
    posterior, order = checkpoint.model.head.posterior, _phi_order(checkpoint)
    if posterior.covariance not in ("lowrank", "diagonal"):
        return np.ones(len(order))
    diagonal: Array = posterior.diagonal().detach().double().numpy()[order]
    if not diagonal.any():
        return np.ones(len(order))
    scales: Array = np.sqrt(np.maximum(diagonal, _LEAST_VARIANCE * diagonal.max()))
    return scales


def _phi_order(checkpoint: Checkpoint) -> list[int]:
    """Where each column of the graph's phi lies in the model's phi = [f, (x), novelty]."""
    model = checkpoint.model
    hidden = model.backbone.width
    raw = model.towers.width if model.backbone.raw else 0
    order = list(range(hidden))
    for kind, index in phi_inputs(checkpoint):
        order.append(hidden + index if kind == "x" else hidden + raw + index)
    return order


def phi_inputs(checkpoint: Checkpoint) -> list[tuple[str, int]]:
    """The columns of the input vector that phi carries: all of them, or only novelty where x stays out of phi."""
    columns = features.input_columns(checkpoint.model, checkpoint.encoding)
    return columns if checkpoint.model.backbone.raw else [column for column in columns if column[0] == "novelty"]


@dataclass(frozen=True)
class FoldedScales:
    """phi's scales as tables and weights carry them: of f's columns, and of the input vector's, 1 for those that phi
    does not carry. In half precision nothing is folded, small numbers would leave its range; `phi_parts` multiplies."""

    hidden: Array
    inputs: Array

    @classmethod
    def of(cls, checkpoint: Checkpoint, dtype: type) -> "FoldedScales":
        columns = features.input_columns(checkpoint.model, checkpoint.encoding)
        hidden, inputs = np.ones(checkpoint.model.backbone.width), np.ones(len(columns))
        if dtype == np.float32:
            scales = phi_scales(checkpoint)
            hidden, carried = np.split(scales, [len(hidden)])
            inputs[[columns.index(column) for column in phi_inputs(checkpoint)]] = carried
        return cls(hidden, inputs)

    def by_feature(self, checkpoint: Checkpoint) -> dict[str, Array]:
        """The input vector's, in float32 as the tables are."""
        widths = [features.input_width(checkpoint.model, feature) for feature in checkpoint.encoding.schema.features]
        parts = np.split(self.inputs.astype(np.float32), np.cumsum(widths)[:-1])
        return dict(zip((feature.name for feature in checkpoint.encoding.schema.features), parts, strict=True))

    def layers(self, layers: list[tuple[Array, Array]], residual: bool) -> list[tuple[Array, Array]]:
        """The same layers, from an input vector that comes scaled to an f that leaves scaled: relu(a z) = a relu(z).
        What residual blocks add to is scaled from the first layer on."""
        inner = self.hidden if residual else np.ones(1)
        rescaled = []
        for index, (weight, bias) in enumerate(layers):
            comes = inner if index else self.inputs
            leaves = self.hidden if index == len(layers) - 1 else inner
            rescaled.append((weight / comes[:, None] * leaves, bias * leaves))
        return rescaled
