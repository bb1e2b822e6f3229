"""Nodes of the last layer: outputs and posterior variance s^2 from phi."""

from dataclasses import dataclass

import numpy as np

from export.builder import Array, GraphBuilder
from export.last_layer import LastLayer


@dataclass(frozen=True)
class PhiNodes:
    """phi [n, D] in its two parts, which are never put side by side: f [n, hidden], and what it carries of the
    expanded inputs [n, ..], or None."""

    f: str
    carried: str | None
    hidden: int

    def product(self, g: GraphBuilder, weight: Array, bias: Array | None, name: str) -> str:
        """phi @ weight [D, K] + bias [K]."""
        own, beside = (part.astype(np.float32) for part in np.split(weight, [self.hidden]))
        shift = None if bias is None else bias.astype(np.float32)
        if self.carried is None:
            return g.linear(self.f, own, shift, name)
        shared = g.linear(self.carried, beside, shift, f"{name}/carried")
        return g.node("Gemm", [self.f, g.constant(f"{name}/own", own), shared], name)

    def squares(self, g: GraphBuilder) -> "PhiNodes":
        carried = None if self.carried is None else g.node("Mul", [self.carried] * 2, "phi/carried_squares")
        return PhiNodes(g.node("Mul", [self.f, self.f], "phi/squares"), carried, self.hidden)


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


def apply(g: GraphBuilder, phi: PhiNodes, layer: LastLayer, basis: Array) -> LastLayerNodes:
    """Outputs in `basis` [K, K'] (outputs = (phi W + b) basis), and what phi' S phi is made of."""
    weight, bias = layer.weight @ basis, layer.bias @ basis
    rank, diagonal = 0, None
    if layer.factor is not None:
        rank = layer.factor.shape[1]
        weight, bias = np.concatenate([weight, layer.factor], 1), np.concatenate([bias, np.zeros(rank)])
        if layer.diagonal is not None:
            diagonal = phi.squares(g).product(g, layer.diagonal[:, None], None, "posterior/own")
    return LastLayerNodes(phi.product(g, weight, bias, "last"), basis.shape[1], rank, diagonal)
