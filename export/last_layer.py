"""The last layer of one trained network as plain weights.

Before they are written, the mean weights are transformed to the basis that the head's closed forms need. The
posterior's covariance is S = diag(d) + U U': its low-rank factor U adds columns to the same product, and d weights the
squares of phi. So the posterior costs a few columns and a sum of squares instead of a matrix.
"""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from export import network
from export.builder import Array
from export.errors import UnsupportedModelError
from learning.checkpoint import Checkpoint


@dataclass(frozen=True)
class LastLayer:
    """phi [n, D] -> outputs, with phi's columns in the graph's order.

    weight [D, K], bias [K]: posterior means. factor [D, r]: U of S = diag(d) + U U', where r may be 0; None for a
    deterministic model. diagonal [D]: d; None if it is zero. scales [K]: a_k.
    """

    weight: Array
    bias: Array
    factor: Array | None
    diagonal: Array | None
    scales: Array

    def at_temperature(self, temperature: float) -> "LastLayer":
        """The same layer with outputs divided by a temperature; s^2 does not change."""
        return replace(self, weight=self.weight / temperature, bias=self.bias / temperature)


def last_layer(checkpoint: Checkpoint) -> LastLayer:
    """The posterior, with rows permuted to the graph's phi = [f, expanded inputs]. Float64, except for the scales."""
    posterior = checkpoint.model.head.posterior
    order = _phi_order(checkpoint)

    def permuted(rows: Tensor) -> Array:
        """rows [D, ..] in the graph's order."""
        values: Array = rows.detach().double().numpy()
        return values[order]

    weight, scales = permuted(posterior.mean.T), posterior.scales.detach().numpy()
    bias: Array = posterior.bias.detach().double().numpy()
    if posterior.covariance is None:
        return LastLayer(weight, bias, None, None, scales)
    if posterior.covariance == "per-output":
        raise UnsupportedModelError(
            "a per-output covariance is for comparison only and has no served graph; train with --covariance lowrank"
        )
    if posterior.covariance == "dense":
        return LastLayer(weight, bias, permuted(posterior.cholesky()), None, scales)
    factor = np.zeros((len(order), 0))
    if posterior.covariance == "lowrank":
        factor = permuted(posterior.factor())
    diagonal = permuted(posterior.diagonal())
    return LastLayer(weight, bias, factor, diagonal if diagonal.any() else None, scales)


def _phi_order(checkpoint: Checkpoint) -> list[int]:
    """Position of each column of the graph's phi in the model's phi = [f, (x, cross)]."""
    if checkpoint.model_config.own:
        return list(range(checkpoint.model.features))
    backbone = checkpoint.model.backbone
    carried = network.expanded_columns(checkpoint) if backbone.raw else []
    return [*range(backbone.width), *(backbone.width + index for index in carried)]
