"""The QR head: closed_forms.quantile_mixture as graph nodes.

The last layer returns not K quantiles but the basis that the mixture needs: the centre of each group and the details
inside it. Kernels are then sums of squares, which do not cancel, and one product with a constant matrix gathers all of
them. Nothing is sorted. The mixture is defined on the scale z of the warped target; it is evaluated at the z of the
knots, and every served value is computed from there.
"""

from dataclasses import dataclass

import numpy as np

from export import cdf_nodes
from export.builder import Array, GraphBuilder, Value
from export.posterior_nodes import LastLayerNodes
from ghostless.heads.closed_forms.quantile_mixture import VARIANCE_FLOOR, detail_matrix
from ghostless.heads.quantile import QuantileHead
from learning.config import ModelConfig


@dataclass(frozen=True)
class QuantileBasis:
    """How K quantiles are read: columns [G centres, G d details]; matrix [K, columns]."""

    matrix: Array
    groups: int
    details: int

    @classmethod
    def of(cls, config: ModelConfig) -> "QuantileBasis":
        details = detail_matrix(config.levels, config.groups, config.bandwidth).numpy()
        size = config.levels // config.groups
        centres = np.kron(np.eye(config.groups), np.full((1, size), 1.0 / size))
        matrix = np.concatenate([centres, details]).T
        return cls(matrix, config.groups, len(details) // config.groups)

    @property
    def columns(self) -> int:
        return int(self.matrix.shape[1])

    def gather_squares(self, rank: int) -> Array:
        """[columns + rank, G (+ 1)]: squares of the columns -> twice each group's kernel; and, if U' phi follows the
        columns, phi' U U' phi."""
        gather = np.zeros((self.columns + rank, self.groups + bool(rank)))
        for group in range(self.groups):
            rows = slice(self.groups + group * self.details, self.groups + (group + 1) * self.details)
            gather[rows, group] = 2.0
        gather[self.columns :, self.groups :] = 1.0
        return gather


@dataclass(frozen=True)
class Components:
    """The mixture's Gaussians. centre [.., G]; inverse [.., G]: 1 / (sqrt(2) sd); scaled [.., G]: centre * inverse;
    s2 [1, n]: the posterior's variance; None if there is no posterior. Leading axes: rows, or members and rows."""

    centre: Value
    inverse: Value
    scaled: Value
    s2: Value | None


def components(g: GraphBuilder, last: LastLayerNodes, scales: Array, basis: QuantileBasis) -> Components:
    squares = g.node("Mul", [last.columns, last.columns], "mixture/squares")
    gather, s2 = basis.gather_squares(last.rank), last.diagonal
    floor = np.full(basis.groups, 2.0 * VARIANCE_FLOOR)
    if not last.rank and last.diagonal is None:
        gathered = g.node("MatMul", [squares, g.constant("mixture/gather", gather)], "mixture/gathered")
        variance = g.node("Add", [gathered, g.constant("mixture/floor", floor)], "mixture/variance")
    else:
        # Every group's variance contains 2 a_g^2 s^2. The diagonal's part of it and the floor are one product with
        # inner dimension 1; the squares of the low-rank part are included in the product that gathers the kernels.
        twice = 2.0 * (scales.reshape(basis.groups, -1).astype(np.float64) ** 2).mean(1)
        gather[basis.columns :, : basis.groups] = twice
        each, offset = (np.append(part, end) if last.rank else part for part, end in ((twice, 1.0), (floor, 0.0)))
        if last.diagonal is not None:
            operands = [last.diagonal, *(g.constant("mixture/own", part) for part in (each[None, :], offset))]
            start = g.node("Gemm", operands, "posterior/own/variance", transA=1)
        else:
            start = g.constant("mixture/floor", offset)
        variance = g.node("Gemm", [squares, g.constant("mixture/gather", gather), start], "mixture/gathered")
        if last.rank:
            variance, column = g.split(variance, [basis.groups, 1], ["mixture/variance", "posterior/s2"])
            s2 = g.reshape(column, [1, -1], "posterior/s2/row")
    inverse = g.node("Reciprocal", [g.node("Sqrt", [variance], "mixture/sd")], "mixture/inverse")
    centre = g.slice(last.columns, 0, basis.groups, "mixture/centre")
    return Components(centre, inverse, g.node("Mul", [centre, inverse], "mixture/scaled"), s2)


def erf_at_knots(g: GraphBuilder, parts: Components, z: Array, members: int = 1) -> Value:
    """erf((z - centre) / (sqrt(2) sd)) of every component at z [p]: [p, G all rows], component by component.

    ONNX Runtime sums over a middle axis, with rows contiguous, in half the time that it needs for the last axis.
    """
    perm = [1, 0] if members == 1 else [2, 0, 1]
    inverse, scaled = (
        g.node("Transpose", [part], "cdf/by_component", perm=perm) for part in (parts.inverse, parts.scaled)
    )
    return g.node("Erf", [cdf_nodes.outer(g, z, inverse, scaled, "cdf/z")], "cdf/erf")


def erf_sums(g: GraphBuilder, erf: Value, points: int, groups: int) -> Value:
    """Summed over components: [p, all rows]."""
    return g.sum(g.reshape(erf, [points, groups, -1]), "cdf/components", axis=1)


def last_layer_variance(g: GraphBuilder, erf: Value, s2: Value, scales: Array, head: QuantileHead) -> Value:
    """l = s^2 (sum_k y'_k (A(z_k+1) - A(z_k)))^2, [n]; A(z) = mean_g a_g Phi((z - c_g) / sd_g), `erf` at the z of
    all knots.

    The constant 1/2 of Phi cancels in the differences of A, and the sum over these differences is rewritten as a sum
    over A weighted by differences of y'.
    """
    slopes = head.warp.slopes().double().numpy()
    padded = np.concatenate([[0.0], slopes, [0.0]])
    by_knot = padded[:-1] - padded[1:]
    groups = head.config.groups
    a = scales.astype(np.float64).reshape(groups, -1).mean(1)
    moved = g.node("MatMul", [g.constant("moved/slopes", by_knot[None, :]), erf], "moved/components")
    weights = g.constant("moved/scales", 0.5 / groups * a)
    shift = g.node("MatMul", [weights, g.reshape(moved, [groups, -1])], "moved/shift")
    return g.node("Mul", [g.node("Mul", [shift, shift]), s2], "last_layer")
