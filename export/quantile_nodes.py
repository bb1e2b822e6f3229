"""The QR head: closed_forms.quantile_mixture as graph nodes.

The last layer answers not with K quantiles but in the basis the mixture wants: their mean, the groups' centres about
that mean, and the details inside each group. Mean and variances are then sums of squares, free of cancellation, and
one product with a constant matrix gathers all of them. Nothing is sorted.
"""

from dataclasses import dataclass

import numpy as np

from export import cdf_nodes
from export.builder import Array, GraphBuilder
from export.cdf_nodes import CdfColumns
from export.options import Layout
from export.posterior_nodes import LastLayerNodes
from ghostless.contract import metadata
from ghostless.heads.closed_forms.quantile_mixture import VARIANCE_FLOOR, detail_matrix
from learning.config import ModelConfig


@dataclass(frozen=True)
class QuantileBasis:
    """How K quantiles are read: columns [mean, G centres about it, G d details]; matrix [K, columns]."""

    matrix: Array
    groups: int
    details: int

    @classmethod
    def of(cls, config: ModelConfig) -> "QuantileBasis":
        details = detail_matrix(config.levels, config.groups, config.bandwidth).numpy()
        size = config.levels // config.groups
        centres = np.kron(np.eye(config.groups), np.full((1, size), 1.0 / size))
        mean = np.full((1, config.levels), 1.0 / config.levels)
        matrix = np.concatenate([mean, centres - mean, details]).T
        return cls(matrix, config.groups, len(details) // config.groups)

    @property
    def columns(self) -> int:
        return int(self.matrix.shape[1])

    def gather_squares(self, rank: int) -> Array:
        """[columns + rank, G + 1 (+ 1)]: squares of the columns -> twice each group's kernel; spread plus mean kernel;
        and, where U' phi follows the columns, phi' U U' phi."""
        gather = np.zeros((self.columns + rank, self.groups + 1 + bool(rank)))
        noise = self.groups
        gather[1 : 1 + self.groups, noise] = 1.0 / self.groups
        for group in range(self.groups):
            rows = slice(1 + self.groups + group * self.details, 1 + self.groups + (group + 1) * self.details)
            gather[rows, group] = 2.0
            gather[rows, noise] = 1.0 / self.groups
        gather[self.columns :, noise + 1 :] = 1.0
        return gather


@dataclass(frozen=True)
class Components:
    """The mixture's Gaussians. mean [.., 1]; noise [.., 1]: variance of the reconstruction alone; centre [.., G];
    inverse [.., G]: 1 / (sqrt(2) sd); scaled [.., G]: centre * inverse; s2 [n, 1]: the posterior's variance, None
    without one. Leading axes: rows, or members and rows."""

    mean: str
    noise: str
    centre: str
    inverse: str
    scaled: str
    s2: str | None


def components(g: GraphBuilder, last: LastLayerNodes, scales: Array, basis: QuantileBasis) -> Components:
    squares = g.node("Mul", [last.columns, last.columns], "mixture/squares")
    gather = g.constant("mixture/gather", basis.gather_squares(last.rank))
    gathered = g.node("MatMul", [squares, gather], "mixture/gathered")
    names = ["mixture/kernel", "mixture/noise", "posterior/lowrank"]
    parts = g.split(gathered, [basis.groups, 1, 1][: 2 + bool(last.rank)], names)
    kernel, noise = parts[:2]
    s2 = last.variance(g, parts[2] if last.rank else None)
    variance = g.node("Add", [kernel, g.constant("mixture/floor", 2.0 * VARIANCE_FLOOR)], "mixture/floored")
    if s2 is not None:
        squares_of_scales = scales.reshape(basis.groups, -1).astype(np.float64) ** 2
        posterior = g.node("Mul", [s2, g.constant("mixture/scales", 2.0 * squares_of_scales.mean(1))])
        variance = g.node("Add", [variance, posterior], "mixture/variance")
    inverse = g.node("Reciprocal", [g.node("Sqrt", [variance], "mixture/sd")], "mixture/inverse")
    mean = g.columns(last.columns, 0, 1, "mixture/mean")
    about = g.columns(last.columns, 1, 1 + basis.groups, "mixture/about")
    centre = g.node("Add", [about, mean], "mixture/centre")
    return Components(mean, noise, centre, inverse, g.node("Mul", [centre, inverse], "mixture/scaled"), s2)


def read_distribution(g: GraphBuilder, parts: Components, groups: int, members: int, layout: Layout) -> CdfColumns:
    return cdf_nodes.read_cdf(g, *knot_sums(g, parts, groups, members, layout), layout)


def knot_sums(
    g: GraphBuilder, parts: Components, groups: int, members: int, layout: Layout
) -> tuple[str, Array, Array]:
    """The CDF at the inner knots: the mean over components of (1 + erf((knot - centre) / (sqrt(2) sd))) / 2.

    As sums of erf [n, inner], and the matrix [inner, knots] and offset [knots] that make the CDF at all knots of them.
    """
    inner = layout.knots[1:-1]
    z = cdf_nodes.outer(g, inner, parts.inverse, parts.scaled, "cdf/z")
    summed = g.sum_last(g.reshape(g.node("Erf", [z], "cdf/erf"), [len(inner), -1, groups]), "cdf/components")
    if members > 1:
        axis = g.constant("axis", [1], np.int64)
        by_member = g.reshape(summed, [len(inner), members, -1])
        summed = g.node("ReduceSum", [by_member, axis], "cdf/members", keepdims=0)
    by_row = g.node("Transpose", [summed], "cdf/rows", perm=[1, 0])
    to_cdf = np.zeros((len(inner), len(layout.knots)))
    to_cdf[:, 1:-1] = np.eye(len(inner)) * (0.5 / (groups * members))
    offset = np.full(len(layout.knots), 0.5)
    offset[0], offset[-1] = 0.0, 1.0
    return by_row, to_cdf, offset


def density(g: GraphBuilder, parts: Components, groups: int, members: int, layout: Layout) -> str:
    """The mixture's density on the grid, [n, g]: exp(-z^2) / (sqrt(2) sd) summed over components, over sqrt(pi)."""
    z = cdf_nodes.outer(g, layout.grid, parts.inverse, parts.scaled, "density/z")
    bell = g.node("Exp", [g.node("Neg", [g.node("Mul", [z, z])])], "density/bell")
    weighted = g.node("Mul", [bell, g.reshape(parts.inverse, [1, -1])], "density/weighted")
    rows = g.reshape(weighted, [len(layout.grid), members, -1, groups])
    scale = g.constant("density/scale", 1.0 / (np.sqrt(np.pi)))
    averaged = g.node("Mul", [g.mean(rows, [1, 3], "density/mean"), scale])
    return g.node("Transpose", [averaged], "density/rows", perm=[1, 0])


def posterior_outputs(g: GraphBuilder, parts: Components, scales: Array) -> dict[str, str]:
    """Moments of one network's mixture: mean, aleatoric, epistemic, logit_variance, each [n]."""
    mean, noise = g.squeeze(parts.mean), g.squeeze(parts.noise)
    if parts.s2 is None:
        zeros = {name: g.zeros_like(mean, name) for name in ("mixture/epistemic", "mixture/logit_variance")}
        epistemic, logit_variance = zeros.values()
        aleatoric = noise
    else:
        logit_variance = g.squeeze(parts.s2)
        a = scales.astype(np.float64)
        epistemic = g.node("Mul", [logit_variance, g.constant("mixture/shared", a.mean() ** 2)], "mixture/epistemic")
        own = g.node("Mul", [logit_variance, g.constant("mixture/own", a.var())])
        aleatoric = g.node("Add", [noise, own], "mixture/aleatoric")
    return {
        metadata.MEAN: mean,
        metadata.ALEATORIC: aleatoric,
        metadata.EPISTEMIC: epistemic,
        metadata.LOGIT_VARIANCE: logit_variance,
    }


def member_outputs(g: GraphBuilder, parts: Components) -> dict[str, str]:
    """Moments of M members' mixture, leading axis M: epistemic is how far their means disagree."""
    mean = g.mean(parts.mean, [0], "members/mean")
    centre = g.mean(parts.centre, [0], "members/centre", keepdims=True)
    distance = g.node("Sub", [parts.centre, centre], "members/distance")
    apart = g.node("Sub", [parts.mean, mean], "members/apart")
    return {
        metadata.MEAN: g.squeeze(mean),
        metadata.ALEATORIC: g.squeeze(g.mean(parts.noise, [0], "members/noise")),
        metadata.EPISTEMIC: g.mean(g.node("Mul", [apart, apart]), [0, 2], "members/epistemic"),
        metadata.LOGIT_VARIANCE: g.mean(g.node("Mul", [distance, distance]), [0, 2], "members/logit_variance"),
    }
