"""Nodes that both heads' tails share: a calibrated CDF at knots, read as bins, atoms, quantiles, moments and density.

Knots are non-decreasing; a value that appears twice is an atom. Every function below reads the same calibrated heights,
so the outputs can't disagree.

Heights and masses are [knots, n]: a slice is then contiguous in memory, and sums and broadcasts over knots run along
the rows. The wide tensors of a head are outer sums, level x row or knot x component. As a broadcast, each costs several
passes over memory; as a product with an inner dimension of two, [p, 2] @ [2, n c], it costs one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from export.builder import INT32, Array, GraphBuilder, Value
from export.options import Layout
from ghostless.contract.distribution import LEAST_MASS


def outer(g: GraphBuilder, points: Array, slope: Value, intercept: Value, name: str, scale: float = 1.0) -> Value:
    """scale (points_p slope_c - intercept_c) -> [p, all entries of slope]; slope and intercept have the same shape."""
    pair = g.reshape(g.node("Concat", [slope, intercept], f"{name}/pair", axis=0), [2, -1])
    grid = scale * np.stack([points, -np.ones_like(points)], 1)
    return g.node("MatMul", [g.constant(f"{name}/points", grid), pair], name)


@dataclass(frozen=True)
class Segments:
    """The calibrated distribution: `cdf` [k, n] at all knots, and for each segment its `mass` and the height at its
    lower end, `low`, both [k - 1, n]."""

    cdf: Value
    mass: Value
    low: Value


def from_masses(g: GraphBuilder, mass: Value, layout: Layout) -> Segments:
    """From uncalibrated masses [n, k - 1] of the segments."""
    inner = len(layout.knots) - 1
    below = np.tril(np.ones((inner + 1, inner)), -1)
    pieces = 1 if layout.map_heights is None else len(layout.map_heights) - 1
    scaled = g.node("Gemm", [g.constant("cdf/below", pieces * below), mass], "cdf/scaled", transB=1)
    if layout.map_heights is not None:
        return _calibrated(g, scaled, layout)
    return Segments(scaled, g.transpose(mass, "cdf/mass"), g.slice(scaled, 0, inner, "cdf/low", axis=0))


def from_heights(g: GraphBuilder, source: Value, to_heights: Array, offset: Array, layout: Layout) -> Segments:
    """From source [c, n], in which the uncalibrated heights are affine: heights = to_heights' source + offset."""
    pieces = 1 if layout.map_heights is None else len(layout.map_heights) - 1
    weight, bias = g.constant("cdf/weight", pieces * to_heights.T), g.constant("cdf/offset", pieces * offset[:, None])
    scaled = g.node("Gemm", [weight, source, bias], "cdf/scaled")
    if layout.map_heights is not None:
        return _calibrated(g, scaled, layout)
    return _segments(g, g.node("Clip", [scaled, g.constant("zero", 0.0), g.constant("one", 1.0)], "cdf/knots"), layout)


def _calibrated(g: GraphBuilder, scaled: Value, layout: Layout) -> Segments:
    """heads.calibration.apply_map. `scaled` [k, n] holds the heights times J, the number of pieces of the map; in piece
    j the map is a_j + b_j u. A cast finds j, two look-ups find a and b. Piece J, which only rounding can reach, is the
    constant 1."""
    assert layout.map_heights is not None
    heights = np.asarray(layout.map_heights, np.float64)
    slopes = np.append(np.diff(heights), 0.0)
    starts = heights - np.arange(len(heights)) * slopes
    flat = g.reshape(scaled, [1, -1], "map/flat")
    # Rounds towards zero, so a height of -1e-7 is in piece 0.
    piece = g.node("Cast", [flat], "map/piece", to=INT32)
    start, slope = (
        g.node("GatherElements", [g.constant(f"map/{name}s", values[None]), piece], f"map/{name}", axis=1)
        for name, values in (("start", starts), ("slope", slopes))
    )
    mapped = g.node("Add", [g.node("Mul", [slope, flat]), start], "map/heights")
    return _segments(g, g.reshape(mapped, [len(layout.knots), -1], "cdf/knots"), layout)


def _segments(g: GraphBuilder, cdf: Value, layout: Layout) -> Segments:
    """Masses as differences of heights. Rounding may leave a mass slightly below zero; Relu sets it to zero."""
    inner = len(layout.knots) - 1
    low, high = (g.slice(cdf, at, inner + at, f"cdf/{name}", axis=0) for at, name in ((0, "low"), (1, "high")))
    return Segments(cdf, g.node("Relu", [g.node("Sub", [high, low])], "cdf/mass"), low)


def quantiles(g: GraphBuilder, segments: Segments, layout: Layout) -> Value:
    """closed_forms.piecewise.quantiles: [n, q]."""
    floored = g.at_least(segments.mass, LEAST_MASS, "quantiles/mass")
    slope = g.node("Reciprocal", [floored], "quantiles/slope")
    intercept = g.node("Mul", [segments.low, slope], "quantiles/intercept")
    widths = np.diff(layout.knots)
    below = outer(g, layout.levels, slope, intercept, "quantiles/below")
    covered = g.node("Clip", [below, g.constant("zero", 0.0), g.constant("one", 1.0)], "quantiles/covered")
    by_level = g.reshape(covered, [len(layout.levels), len(widths), -1])
    reach = g.node("MatMul", [g.constant("quantiles/widths", widths), by_level], "quantiles/reach")
    values = g.transpose(reach, "quantiles/rows")
    if layout.knots[0]:
        values = g.node("Add", [values, g.constant("quantiles/start", layout.knots[0])], "quantiles/values")
    return values


def bins(g: GraphBuilder, segments: Segments, layout: Layout) -> Value:
    """[n, b]: mass of [l, u) between neighbouring edges, which includes an atom at l; the last bin also includes one at
    its u."""
    merge = layout.bins_of_segments()
    if merge.shape[0] == merge.shape[1]:
        return g.transpose(segments.mass, "bins/rows")
    return g.node("Gemm", [segments.mass, g.constant("bins/merge", merge)], "bins/rows", transA=1)


def atoms(g: GraphBuilder, segments: Segments, layout: Layout) -> Value:
    """[n, a]: P(y = value)."""
    places = g.constant("atoms/segments", np.flatnonzero(np.diff(layout.knots) == 0), np.int64)
    return g.transpose(g.node("Gather", [segments.mass, places], axis=0), "atoms/rows")


def density(g: GraphBuilder, segments: Segments, layout: Layout) -> Value:
    """closed_forms.piecewise.density on the grid: [n, g]."""
    widths = np.diff(layout.knots)
    heights = np.zeros((len(widths), len(layout.grid)))
    for column, index in enumerate(np.searchsorted(layout.knots, layout.grid, side="right") - 1):
        if 0 <= index < len(widths) and widths[index]:
            heights[index, column] = 1.0 / widths[index]
    return g.node("Gemm", [segments.mass, g.constant("density/heights", heights)], "density/rows", transA=1)


@dataclass(frozen=True)
class Moments:
    """mean [n]; total [n]: the variance; weighted [k - 1, n]: mass times distance from the mean; count: number of
    segments."""

    mean: Value
    total: Value
    weighted: Value
    count: int


def sum_segments(g: GraphBuilder, value: Value, count: int, name: str, weight: float = 1.0) -> Value:
    """weight times the sum of [k - 1, n] over segments: [n]. Computed as a product, because ONNX Runtime's own sum over
    the first axis takes four times as long."""
    return g.node("MatMul", [g.constant(f"{name}/weights", np.full(count, weight)), value], name)


def moments(g: GraphBuilder, mass: Value, knots: Array, name: str = "moments") -> Moments:
    """closed_forms.piecewise.moments of masses [k - 1, n]: y is uniform inside a segment, and constant at an atom."""
    centres, widths = 0.5 * (knots[1:] + knots[:-1]), np.diff(knots)
    mean, inside = (
        g.node("MatMul", [g.constant(f"{name}/{part}s", weights[None, :]), mass], f"{name}/{part}")
        for part, weights in (("centre", centres), ("inside", widths**2 / 12.0))
    )
    # centre - mean as a product with inner dimension 1, which takes half the time of a broadcast.
    operands = [g.constant(f"{name}/minus", -np.ones((len(centres), 1))), mean]
    distance = g.node("Gemm", [*operands, g.constant(f"{name}/centre", centres[:, None])], f"{name}/distance")
    weighted = g.node("Mul", [mass, distance], f"{name}/weighted")
    squares = g.node("Mul", [weighted, distance], f"{name}/squares")
    total = g.node("Gemm", [g.constant(f"{name}/ones", np.ones((1, len(centres)))), squares, inside], f"{name}/total")
    return Moments(g.squeeze(mean, 0), g.squeeze(total, 0), weighted, len(centres))


def with_zeros(g: GraphBuilder, values: Mapping[str, Value | None]) -> dict[str, Value]:
    """Values [n] by output, with None replaced by zeros."""
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) == len(values):
        return given
    zeros = g.zeros_like(next(iter(given.values())), "zeros")
    return {name: given.get(name, zeros) for name in values}
