"""The QR head: closed_forms.quantile_mixture as graph nodes.

The last layer answers not with K quantiles but in the basis the mixture wants: their mean, the groups' centres about
that mean, and the details inside each group. Kernels are then sums of squares, free of cancellation, and one product
with a constant matrix gathers all of them. Nothing is sorted. The mixture lives on the warped target's scale z; it is
read at the z of the knots, and all that is served comes from there.
"""

from dataclasses import dataclass

import numpy as np

from export import cdf_nodes
from export.builder import Array, GraphBuilder
from export.posterior_nodes import LastLayerNodes
from ghostless.heads.closed_forms.quantile_mixture import VARIANCE_FLOOR, detail_matrix
from ghostless.heads.quantile import QuantileHead
from learning.config import ModelConfig

# Of a group's 2 a^2, by which its kernel is divided: an a of 1e-6 moves nothing that is served.
LEAST_UNIT = 1e-12


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
        """[columns + rank, G (+ 1)]: squares of the columns -> twice each group's kernel; and, where U' phi follows
        the columns, phi' U U' phi."""
        gather = np.zeros((self.columns + rank, self.groups + bool(rank)))
        for group in range(self.groups):
            rows = slice(self.groups + group * self.details, self.groups + (group + 1) * self.details)
            gather[rows, group] = 2.0
        gather[self.columns :, self.groups :] = 1.0
        return gather


@dataclass(frozen=True)
class Components:
    """The mixture's Gaussians. centre [.., G]; inverse [.., G]: 1 / (sqrt(2) sd); scaled [.., G]: centre * inverse;
    s2 [n, 1]: the posterior's variance, None without one. Leading axes: rows, or members and rows."""

    centre: str
    inverse: str
    scaled: str
    s2: str | None


def components(g: GraphBuilder, last: LastLayerNodes, scales: Array, basis: QuantileBasis) -> Components:
    squares = g.node("Mul", [last.columns, last.columns], "mixture/squares")
    gather, s2 = basis.gather_squares(last.rank), last.diagonal
    if not last.rank and last.diagonal is None:
        variance = g.node("MatMul", [squares, g.constant("mixture/gather", gather)], "mixture/gathered")
    else:
        # In units of 2 a_g^2 every group's variance has s^2 added as it is, which the product does itself.
        squares_of_scales = scales.reshape(basis.groups, -1).astype(np.float64) ** 2
        unit = np.maximum(2.0 * squares_of_scales.mean(1), LEAST_UNIT)
        gather[: basis.columns, : basis.groups] /= unit
        gather[basis.columns :, : basis.groups] = 1.0
        operands = [squares, g.constant("mixture/gather", gather), *([last.diagonal] if last.diagonal else [])]
        gathered = g.node("Gemm", operands, "mixture/gathered")
        if last.rank:
            gathered, s2 = g.split(gathered, [basis.groups, 1], ["mixture/units", "posterior/s2"])
        variance = g.node("Mul", [gathered, g.constant("mixture/unit", unit[None, :])], "mixture/own")
    variance = g.node("Add", [variance, g.constant("mixture/floor", 2.0 * VARIANCE_FLOOR)], "mixture/variance")
    inverse = g.node("Reciprocal", [g.node("Sqrt", [variance], "mixture/sd")], "mixture/inverse")
    centre = g.columns(last.columns, 0, basis.groups, "mixture/centre")
    return Components(centre, inverse, g.node("Mul", [centre, inverse], "mixture/scaled"), s2)


def erf_at_knots(g: GraphBuilder, parts: Components, z: Array) -> str:
    """erf((z - centre) / (sqrt(2) sd)) of every component at z [p]: [p, all rows' components]."""
    return g.node("Erf", [cdf_nodes.outer(g, z, parts.inverse, parts.scaled, "cdf/z")], "cdf/erf")


def erf_sums(g: GraphBuilder, erf: str, points: int, groups: int, members: int = 1) -> str:
    """Summed over components, [n, p]; of stacked members [M, n, p]."""
    summed = g.sum_last(g.reshape(erf, [points, -1, groups]), "cdf/components")
    if members == 1:
        return g.node("Transpose", [summed], "cdf/rows", perm=[1, 0])
    return g.node("Transpose", [g.reshape(summed, [points, members, -1])], "cdf/rows", perm=[1, 2, 0])


def last_layer_variance(g: GraphBuilder, erf: str, s2: str, scales: Array, head: QuantileHead) -> str:
    """l = s^2 (sum_k y'_k (A(z_k+1) - A(z_k)))^2, [n]; A(z) = mean_g a_g Phi((z - c_g) / sd_g), `erf` at all knots' z.

    In A the constant half cancels, and a sum over differences is one over A with differences of y'.
    """
    slopes = head.warp.slopes().double().numpy()
    padded = np.concatenate([[0.0], slopes, [0.0]])
    by_knot = padded[:-1] - padded[1:]
    groups = head.config.groups
    a = scales.astype(np.float64).reshape(groups, -1).mean(1)
    moved = g.node("MatMul", [g.constant("moved/slopes", by_knot[None, :]), erf], "moved/components")
    rows = g.reshape(moved, [-1, groups])
    shift = g.node("MatMul", [rows, g.constant("moved/scales", 0.5 / groups * a[:, None])], "moved/shift")
    shift = g.squeeze(shift)
    return g.node("Mul", [g.node("Mul", [shift, shift]), s2], "moved/delta")


def centre_variance(g: GraphBuilder, centres: str) -> str:
    """How far M members' centres [M, n, G] disagree, [n], in the warped target's unit squared."""
    centre = g.mean(centres, [0], "members/centre", keepdims=True)
    distance = g.node("Sub", [centres, centre], "members/distance")
    return g.mean(g.node("Mul", [distance, distance]), [0, 2], "members/logit_variance")
