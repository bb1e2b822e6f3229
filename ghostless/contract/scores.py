"""How good a served distribution was once the actual value is known, in closed form.

`learning.metrics` defines the same figures for whole test sets; serving runs without it, on rows as they come.
Shapes: F is piecewise linear through (knots, heights); heights [n, k] rise from 0 to 1; knots [k], or [n, k] where each
row has its own; y [n] lies between a row's first and last knot. Arithmetic is float64.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

# The paper's buckets of the target's range, on which learning reports NLL too.
NLL_BUCKETS = 10
_LEAST_MASS = 1e-12


def cdf_at(heights: Floats, knots: Floats, y: Floats) -> Floats:
    """F(y), shape [n]."""
    return _interpolate(heights, np.broadcast_to(knots, heights.shape), y, _segments(knots, heights, y))


def crps(heights: Floats, knots: Floats, y: Floats) -> Floats:
    """Integral of (F(t) - 1{y <= t})^2 dt, shape [n].

    Multiplied out: integral of F^2 over all segments, plus that of 1 - 2 F from y to the last knot.
    """
    points = np.broadcast_to(knots, heights.shape)
    segment = _segments(knots, heights, y)
    widths = np.diff(points, axis=1)
    left, right = heights[:, :-1], heights[:, 1:]
    squares = np.sum(widths * (left * left + left * right + right * right), axis=1) / 3
    areas = np.cumsum(widths * (left + right), axis=1) / 2
    end = _take(points, segment + 1)
    at_y = _interpolate(heights, points, y, segment)
    above = areas[:, -1] - _take(areas, segment) + (end - y) * (at_y + _take(heights, segment + 1)) / 2
    scores: Floats = squares + (points[:, -1] - y) - 2 * above
    return scores


def bucket_nll(heights: Floats, knots: Floats, y: Floats, low: float, high: float) -> Floats:
    """-log of the probability of the bucket that holds y, of NLL_BUCKETS equal ones on [low, high], shape [n]."""
    edges = np.linspace(low, high, NLL_BUCKETS + 1)
    # The target is float32 everywhere, so a y on an edge must meet the edge as float32.
    bucket = np.searchsorted(edges.astype(np.float32), y.astype(np.float32), side="right") - 1
    bucket = np.clip(bucket, 0, NLL_BUCKETS - 1)
    mass = cdf_at(heights, knots, edges[bucket + 1]) - cdf_at(heights, knots, edges[bucket])
    scores: Floats = -np.log(np.maximum(mass, _LEAST_MASS))
    return scores


def _segments(knots: Floats, heights: Floats, y: Floats) -> Places:
    """Which segment holds each row's y, shape [n]; segments are [knot, next knot)."""
    passed = np.searchsorted(knots, y, side="right") if knots.ndim == 1 else (knots <= y[:, None]).sum(axis=1)
    return np.clip(passed - 1, 0, heights.shape[1] - 2).astype(np.int64)


def _interpolate(heights: Floats, points: Floats, y: Floats, segment: Places) -> Floats:
    start, width = _take(points, segment), _take(points, segment + 1) - _take(points, segment)
    # Quantiles may coincide; y then is the segment's end, which all of its mass lies at or below.
    share = np.divide(y - start, width, out=np.ones_like(y), where=width > 0)
    low = _take(heights, segment)
    values: Floats = low + np.clip(share, 0.0, 1.0) * (_take(heights, segment + 1) - low)
    return values


def _take(matrix: Floats, places: Places) -> Floats:
    """matrix [n, m] at each row's own column [n]."""
    values: Floats = np.take_along_axis(matrix, places[:, None], axis=1)[:, 0]
    return values
