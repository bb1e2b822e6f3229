"""Nodes of the last layer: outputs and posterior variance s^2 from phi."""

from dataclasses import dataclass

import numpy as np

from export.builder import Array, GraphBuilder
from export.last_layer import LastLayer


@dataclass(frozen=True)
class PhiNodes:
    """phi [n, D] in its two parts, which are never put side by side: f [n, hidden], and what it carries of the
    expanded inputs [n, ..], or None. Where there are `scales`, carried columns come times these (network.scales)."""

    f: str
    carried: str | None
    hidden: int
    scales: Array | None = None

    def product(self, g: GraphBuilder, weight: Array, bias: Array | None, name: str) -> str:
        """phi @ weight [D, K] + bias [K]."""
        own, beside = np.split(weight, [self.hidden])
        if self.scales is not None:
            beside = beside / self.scales[:, None]
        own, beside = own.astype(np.float32), beside.astype(np.float32)
        shift = None if bias is None else bias.astype(np.float32)
        if self.carried is None:
            return g.linear(self.f, own, shift, name)
        shared = g.linear(self.carried, beside, shift, f"{name}/carried")
        return g.node("Gemm", [self.f, g.constant(f"{name}/own", own), shared], name)

    def weighted_squares(self, g: GraphBuilder, diagonal: Array) -> str:
        """phi' diag(diagonal) phi, [n, 1]."""
        squares = PhiNodes(g.node("Mul", [self.f, self.f], "phi/squares"), None, self.hidden)
        own, beside = np.split(diagonal[:, None], [self.hidden])
        if self.carried is None:
            return squares.product(g, own, None, "posterior/own")
        carried = g.node("Mul", [self.carried] * 2, "phi/carried_squares")
        if self.scales is None:
            shared = g.linear(carried, beside.astype(np.float32), None, "posterior/own/carried")
        else:
            # The scales are sqrt(d): a sum costs a third of a product with one column.
            shared = g.sum(carried, "posterior/own/carried", keepdims=True)
        return g.node("Gemm", [squares.f, g.constant("posterior/own/d", own), shared], "posterior/own")


@dataclass(frozen=True)
class LastLayerNodes:
    """What phi is multiplied into, with S = diag(d) + U U'.

    columns: [.., width + rank], the outputs in the tail's basis and then U' phi. diagonal: [n, 1], phi' diag(d) phi.
    A deterministic model has neither rank nor diagonal. Leading axes: rows, or members and rows.
    """

    columns: str
    width: int
    rank: int = 0
    diagonal: str | None = None

    def separate(self, g: GraphBuilder) -> tuple[str, str | None]:
        """The outputs alone [.., width], and s^2 [n, 1]."""
        if not self.rank:
            return self.columns, self.diagonal
        outputs, projected = g.split(self.columns, [self.width, self.rank], ["outputs", "posterior/projected"])
        squares = g.node("Mul", [projected, projected], "posterior/lowrank/squares")
        if self.diagonal is None:
            return outputs, g.sum(squares, "posterior/s2", keepdims=True)
        ones = g.constant("posterior/own/ones", np.ones((self.rank, 1)))
        return outputs, g.node("Gemm", [squares, ones, self.diagonal], "posterior/own/s2")


def apply(g: GraphBuilder, phi: PhiNodes, layer: LastLayer, basis: Array) -> LastLayerNodes:
    """Outputs in `basis` [K, K'] (outputs = (phi W + b) basis), and what phi' S phi is made of."""
    weight, bias = layer.weight @ basis, layer.bias @ basis
    rank, diagonal = 0, None
    if layer.factor is not None:
        rank = layer.factor.shape[1]
        weight, bias = np.concatenate([weight, layer.factor], 1), np.concatenate([bias, np.zeros(rank)])
        if layer.diagonal is not None:
            diagonal = phi.weighted_squares(g, layer.diagonal)
    return LastLayerNodes(phi.product(g, weight, bias, "last"), basis.shape[1], rank, diagonal)
