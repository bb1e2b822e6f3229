"""Nodes of the last layer: outputs and posterior variance s^2 from phi."""

from dataclasses import dataclass

import numpy as np

from export.builder import Array, GraphBuilder, Value
from export.last_layer import LastLayer


@dataclass(frozen=True)
class PhiNodes:
    """phi [n, D] in its two parts, which are never concatenated: f [n, hidden], and the expanded inputs that phi
    contains [n, ..], or None."""

    f: Value
    carried: Value | None
    hidden: int

    def product(self, g: GraphBuilder, weight: Array, bias: Array | None, name: str) -> Value:
        """phi @ weight [D, K] + bias [K]."""
        own, beside = np.split(weight.astype(np.float32), [self.hidden])
        shift = None if bias is None else bias.astype(np.float32)
        if self.carried is None:
            return g.linear(self.f, own, shift, name)
        shared = g.linear(self.carried, beside, shift, f"{name}/carried")
        return g.node("Gemm", [self.f, g.constant(f"{name}/own", own), shared], name)

    def weighted_squares(self, g: GraphBuilder, diagonal: Array) -> Value:
        """phi' diag(diagonal) phi, [1, n]."""
        own, beside = np.split(diagonal, [self.hidden])
        total = sum_of_squares(g, self.f, own, None, "posterior/own")
        return total if self.carried is None else sum_of_squares(g, self.carried, beside, total, "posterior/carried")


def sum_of_squares(g: GraphBuilder, value: Value, weights: Array, start: Value | None, name: str) -> Value:
    """start [1, n] + the weighted sum of the squares of a value [n, c], [1, n]. Computed as a row times a transposed
    matrix, because ONNX Runtime multiplies a matrix by a single column at half the speed."""
    squares = g.node("Mul", [value, value], f"{name}/squares")
    operands = [g.constant(f"{name}/weights", weights[None, :]), squares, *([start] if start else [])]
    return g.node("Gemm", operands, name, transB=1)


@dataclass(frozen=True)
class LastLayerNodes:
    """The products of phi with the last layer, where S = diag(d) + U U'.

    columns: [.., width + rank], the outputs in the tail's basis and then U' phi. diagonal: [1, n], phi' diag(d) phi.
    A deterministic model has neither rank nor diagonal. Leading axes: rows, or members and rows.
    """

    columns: Value
    width: int
    rank: int = 0
    diagonal: Value | None = None

    def separate(self, g: GraphBuilder) -> tuple[Value, Value | None]:
        """The outputs alone [.., width], and s^2 [1, n]."""
        if not self.rank:
            return self.columns, self.diagonal
        outputs, projected = g.split(self.columns, [self.width, self.rank], ["outputs", "posterior/projected"])
        return outputs, sum_of_squares(g, projected, np.ones(self.rank), self.diagonal, "posterior/s2")


def apply(g: GraphBuilder, phi: PhiNodes, layer: LastLayer, basis: Array) -> LastLayerNodes:
    """Outputs in `basis` [K, K'] (outputs = (phi W + b) basis), and the terms of phi' S phi."""
    weight, bias = layer.weight @ basis, layer.bias @ basis
    rank, diagonal = 0, None
    if layer.factor is not None:
        rank = layer.factor.shape[1]
        weight, bias = np.concatenate([weight, layer.factor], 1), np.concatenate([bias, np.zeros(rank)])
        if layer.diagonal is not None:
            diagonal = phi.weighted_squares(g, layer.diagonal)
    return LastLayerNodes(phi.product(g, weight, bias, "last"), basis.shape[1], rank, diagonal)
