"""Nodes of the last layer: outputs and posterior variance s^2 from phi, in one product."""

from dataclasses import dataclass

import numpy as np

from export.builder import Array, GraphBuilder
from export.network import LastLayer


@dataclass(frozen=True)
class LastLayerNodes:
    """outputs [n, K'] in the tail's basis; s2 [n, 1], None for a deterministic model."""

    outputs: str
    s2: str | None


def apply(g: GraphBuilder, phi: str, layer: LastLayer, basis: Array) -> LastLayerNodes:
    """phi [n, D] -> outputs in `basis` [K, K'] (outputs = (phi W + b) basis), and phi' S phi.

    S = diag(d) + U U': U' phi comes as r more columns of the outputs' own product.
    """
    weight, bias = layer.weight.astype(np.float64) @ basis, layer.bias.astype(np.float64) @ basis
    if layer.factor is None or layer.diagonal is None:
        return LastLayerNodes(g.linear(phi, weight.astype(np.float32), bias.astype(np.float32), "last"), None)
    rank = layer.factor.shape[1]
    weight = np.concatenate([weight, layer.factor], 1)
    bias = np.concatenate([bias, np.zeros(rank)])
    both = g.linear(phi, weight.astype(np.float32), bias.astype(np.float32), "last")
    parts: list[str] = []
    if layer.diagonal.any():
        squares = g.node("Mul", [phi, phi], "posterior/squares")
        parts.append(g.node("MatMul", [squares, g.constant("posterior/diagonal", layer.diagonal[:, None])]))
    outputs = both
    if rank:
        outputs, projected = g.split(both, [basis.shape[1], rank], ["outputs", "posterior/projected"])
        axis = g.constant("axis", [-1], np.int64)
        parts.append(g.node("ReduceSumSquare", [projected, axis], "posterior/lowrank", keepdims=1))
    s2 = parts[0] if len(parts) == 1 else g.node("Add", parts, "posterior/s2")
    return LastLayerNodes(outputs, s2)
