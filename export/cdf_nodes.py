"""Nodes that both heads' tails share: a CDF at knots, read as bins and inverted to quantiles.

The wide tensors of a tail are outer sums, level x row or knot x component. Written as broadcasts each costs several
passes over memory; written as a product with an inner dimension of two, [p, 2] @ [2, n c], it costs one.
"""

from dataclasses import dataclass

import numpy as np

from export.builder import Array, GraphBuilder
from export.options import Layout
from ghostless.heads.closed_forms.piecewise import LEAST_MASS


def outer(g: GraphBuilder, points: Array, slope: str, intercept: str, name: str, scale: float = 1.0) -> str:
    """scale (points_p slope_c - intercept_c) -> [p, all entries of slope], for slope and intercept of one shape."""
    operands = [g.reshape(slope, [1, -1]), g.reshape(intercept, [1, -1])]
    pair = g.node("Concat", operands, f"{name}/pair", axis=0)
    grid = scale * np.stack([points, -np.ones_like(points)], 1)
    return g.node("MatMul", [g.constant(f"{name}/points", grid), pair], name)


@dataclass(frozen=True)
class CdfColumns:
    """Values read off the CDF, each [n, ...]: `cdf` at all knots, `bins`, and each segment's `mass` and `low` end."""

    cdf: str
    bins: str
    mass: str
    low: str


def read_cdf(g: GraphBuilder, source: str, to_cdf: Array, offset: Array, layout: Layout) -> CdfColumns:
    """From what the CDF is affine in: source [n, c] with cdf = source @ to_cdf [c, k + 1] + offset [k + 1].

    One product gives the CDF, its bins, its segments' masses and lower ends. Rounding may leave a mass a hair below
    zero; the clip takes it away.
    """
    segments = np.diff(np.eye(len(layout.knots)), axis=1)
    at_edges = [int(np.abs(layout.knots - edge).argmin()) for edge in layout.edges]
    bins = np.diff(np.eye(len(layout.knots))[:, at_edges], axis=1)
    low = np.eye(len(layout.knots))[:, :-1]
    read = np.concatenate([np.eye(len(layout.knots)), bins, segments, low], 1)
    columns = g.linear(source, (to_cdf @ read).astype(np.float32), (offset @ read).astype(np.float32), "cdf/columns")
    clipped = g.node("Clip", [columns, g.constant("zero", 0.0), g.constant("one", 1.0)], "cdf/clipped")
    sizes = [len(layout.knots), bins.shape[1], segments.shape[1], low.shape[1]]
    return CdfColumns(*g.split(clipped, sizes, ["cdf/knots", "cdf/bins", "cdf/mass", "cdf/low"]))


def quantiles(g: GraphBuilder, mass: str, low: str, layout: Layout) -> str:
    """closed_forms.piecewise.quantiles: mass and low [n, k] of every segment -> [n, q]."""
    floored = g.node("Max", [mass, g.constant("least", LEAST_MASS)], "quantiles/mass")
    slope = g.node("Reciprocal", [floored], "quantiles/slope")
    intercept = g.node("Mul", [low, slope], "quantiles/intercept")
    widths = np.diff(layout.knots)
    # Of equal segments the lengths below a level are summed; else the shares, each times its segment's width.
    width = float(widths[0]) if np.allclose(widths, widths[0], rtol=1e-9) else None
    below = outer(g, layout.levels, slope, intercept, "quantiles/below", width or 1.0)
    covered = g.node("Clip", [below, g.constant("zero", 0.0), g.constant("whole", width or 1.0)], "quantiles/covered")
    rows = g.reshape(covered, [-1, len(widths)])
    if width is not None:
        reach = g.sum_last(rows, "quantiles/reach")
    else:
        reach = g.node("MatMul", [rows, g.constant("quantiles/widths", widths[:, None])], "quantiles/reach")
    by_level = g.reshape(reach, [len(layout.levels), -1])
    values = g.node("Transpose", [by_level], "quantiles/rows", perm=[1, 0])
    if layout.knots[0]:
        values = g.node("Add", [values, g.constant("quantiles/start", layout.knots[0])], "quantiles/values")
    return values
