"""Nodes of the last layer: outputs and posterior variance s^2 from phi, in one product."""

from dataclasses import dataclass

import numpy as np

from export.builder import Array, GraphBuilder
from export.last_layer import LastLayer


@dataclass(frozen=True)
class LastLayerNodes:
    """What phi is multiplied into, with S = diag(d) + U U'.

    columns: [.., width + rank], the outputs in the head's basis and then U' phi. diagonal: [n, 1], phi' diag(d) phi,
    which is |phi|^2, since phi comes multiplied by sqrt(d).
    A deterministic model has neither rank nor diagonal. Leading axes: rows, or members and rows.
    """

    columns: str
    width: int
    rank: int = 0
    diagonal: str | None = None

    def variance(self, g: GraphBuilder, low_rank: str | None) -> str | None:
        """s^2 [n, 1] from its two parts; None for a deterministic model."""
        if low_rank is None or self.diagonal is None:
            return low_rank or self.diagonal
        return g.node("Add", [low_rank, self.diagonal], "posterior/s2")

    def separate(self, g: GraphBuilder) -> tuple[str, str | None]:
        """The outputs alone [.., width], and s^2 [n, 1]."""
        if not self.rank:
            return self.columns, self.diagonal
        outputs, projected = g.split(self.columns, [self.width, self.rank], ["outputs", "posterior/projected"])
        return outputs, self.variance(g, g.sum_of_squares(projected, "posterior/lowrank", keepdims=True))


def apply(g: GraphBuilder, phi: str, layer: LastLayer, basis: Array) -> LastLayerNodes:
    """phi [n, D] -> outputs in `basis` [K, K'] (outputs = (phi W + b) basis), and what phi' S phi is made of."""
    weight, bias = layer.weight.astype(np.float64) @ basis, layer.bias.astype(np.float64) @ basis
    rank, diagonal = 0, None
    if layer.factor is not None:
        rank = layer.factor.shape[1]
        weight, bias = np.concatenate([weight, layer.factor], 1), np.concatenate([bias, np.zeros(rank)])
        if layer.has_diagonal:
            diagonal = g.sum_of_squares(phi, "posterior/own", keepdims=True)
    columns = g.linear(phi, weight.astype(np.float32), bias.astype(np.float32), "last")
    return LastLayerNodes(columns, basis.shape[1], rank, diagonal)
