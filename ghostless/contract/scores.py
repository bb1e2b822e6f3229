"""Scores of a predictive distribution against the actual value, in closed form.

Used by serving for reported outcomes, and by `learning.metrics` for whole test sets.
Shapes: F is piecewise linear through (knots, heights); heights [n, k] rise from 0 to 1; knots are [k], or [n, k] if
each row has its own; y [n] is between a row's first and last knot. A knot that appears twice is an atom, with heights
F(v-) and F(v). Arithmetic is in float64.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

# Number of buckets of the target's range for the NLL, as in the paper.
NLL_BUCKETS = 10
_LEAST_MASS = 1e-12


def cdf_at(heights: Floats, knots: Floats, y: Floats) -> Floats:
    """F(y), shape [n]; at an atom, including its mass."""
    return _interpolate(heights, np.broadcast_to(knots, heights.shape), y, _segments(knots, heights, y))


def cdf_before(heights: Floats, knots: Floats, y: Floats) -> Floats:
    """F(y-) = P(Y < y), shape [n]; at an atom, without its mass."""
    points = np.broadcast_to(knots, heights.shape)
    passed = np.searchsorted(knots, y, side="left") if knots.ndim == 1 else (knots < y[:, None]).sum(axis=1)
    end = np.clip(passed, 1, heights.shape[1] - 1)
    start, width = _take(points, end - 1), _take(points, end) - _take(points, end - 1)
    share = np.divide(y - start, width, out=(y > start).astype(np.float64), where=width > 0)
    low = _take(heights, end - 1)
    values: Floats = low + np.clip(share, 0.0, 1.0) * (_take(heights, end) - low)
    return values


def pit(heights: Floats, knots: Floats, y: Floats) -> tuple[Floats, Floats]:
    """F(y-) and F(y), [n] each. The randomised PIT is drawn uniformly between them; it is uniform on [0, 1] if F is
    right."""
    return cdf_before(heights, knots, y), cdf_at(heights, knots, y)


def cells(knots: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Lower and upper end [n] of the cell of each value among y [n]: halfway to the next lower and to the next higher
    value; the outermost cells extend to the ends. An atom is its own cell. knots [k] increase, except at atoms.

    Values on a lattice, for example tenths of a minute, have point masses that a density cannot reproduce. Spread over
    their cells they do not, and values that are all different hardly change.
    """
    places, of_row = np.unique(y, return_inverse=True)
    middle = 0.5 * (places[1:] + places[:-1])
    below, above = np.concatenate([knots[:1], middle]), np.concatenate([middle, knots[-1:]])
    is_atom = np.isin(places, knots[1:][knots[1:] == knots[:-1]])
    below, above = np.where(is_atom, places, below), np.where(is_atom, places, above)
    return below[of_row], above[of_row]


def cell_pit(heights: Floats, knots: Floats, below: Floats, above: Floats) -> tuple[Floats, Floats]:
    """F at both ends of `cells`, [n] each. The cell of an atom has its whole mass; an atom at the end of a cell does
    not count."""
    is_atom = below == above
    low = np.where(is_atom, cdf_before(heights, knots, below), cdf_at(heights, knots, below))
    high = np.where(is_atom, cdf_at(heights, knots, above), cdf_before(heights, knots, above))
    return low, high


def crps(heights: Floats, knots: Floats, y: Floats) -> Floats:
    """Integral of (F(t) - 1{y <= t})^2 dt, shape [n].

    Computed as the integral of F^2 over all segments plus that of 1 - 2 F from y to the last knot. An atom has no
    width, so its two heights enter through the segments on either side.
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


def bucket_edges(low: float, high: float, buckets: int = NLL_BUCKETS) -> Floats:
    """Edges [buckets + 1] of equal buckets, rounded to float32, because targets and knots are float32 and must match
    them."""
    return np.linspace(low, high, buckets + 1).astype(np.float32).astype(np.float64)


def bucket_masses(heights: Floats, knots: Floats, edges: Floats) -> Floats:
    """P(y in [l, u)) for each bucket between `edges` [b + 1], shape [n, b]; the last bucket includes its upper edge."""
    below = [cdf_before(heights, knots, np.full(len(heights), edge)) for edge in edges[:-1]]
    below.append(cdf_at(heights, knots, np.full(len(heights), edges[-1])))
    masses: Floats = np.maximum(np.diff(np.stack(below, axis=1), axis=1), 0.0)
    return masses


def bucket_nll(heights: Floats, knots: Floats, y: Floats, low: float, high: float) -> Floats:
    """-log of the probability of the bucket [l, u) that contains y, of NLL_BUCKETS equal ones on [low, high], shape
    [n].

    An atom on an edge belongs to the bucket above it.
    """
    edges = bucket_edges(low, high)
    bucket = np.searchsorted(edges, y.astype(np.float32).astype(np.float64), side="right") - 1
    bucket = np.clip(bucket, 0, NLL_BUCKETS - 1)
    last = bucket == NLL_BUCKETS - 1
    upper, lower = edges[bucket + 1], edges[bucket]
    reached = np.where(last, cdf_at(heights, knots, upper), cdf_before(heights, knots, upper))
    mass = reached - cdf_before(heights, knots, lower)
    scores: Floats = -np.log(np.maximum(mass, _LEAST_MASS))
    return scores


def log_score(heights: Floats, knots: Floats, y: Floats) -> Floats:
    """-log of the mass if y is an atom, else of the density at y (constant between two knots), shape [n].

    Only comparable between distributions with the same atoms; the density depends on the target's unit.
    """
    points = np.broadcast_to(knots, heights.shape)
    before, at = pit(heights, knots, y)
    segment = _segments(knots, heights, y)
    on_atom = ((points[:, 1:] == y[:, None]) & (points[:, :-1] == y[:, None])).any(axis=1)
    width = _take(points, segment + 1) - _take(points, segment)
    mass = _take(heights, segment + 1) - _take(heights, segment)
    density = np.divide(mass, width, out=np.zeros_like(y), where=width > 0)
    scores: Floats = -np.log(np.maximum(np.where(on_atom, at - before, density), _LEAST_MASS))
    return scores


def _segments(knots: Floats, heights: Floats, y: Floats) -> Places:
    """The segment that contains each row's y, shape [n]; segments are [knot, next knot)."""
    passed = np.searchsorted(knots, y, side="right") if knots.ndim == 1 else (knots <= y[:, None]).sum(axis=1)
    return np.clip(passed - 1, 0, heights.shape[1] - 2).astype(np.int64)


def _interpolate(heights: Floats, points: Floats, y: Floats, segment: Places) -> Floats:
    start, width = _take(points, segment), _take(points, segment + 1) - _take(points, segment)
    # If the segment has no width, y is the last knot and an atom, whose whole mass is at or below y.
    share = np.divide(y - start, width, out=np.ones_like(y), where=width > 0)
    low = _take(heights, segment)
    values: Floats = low + np.clip(share, 0.0, 1.0) * (_take(heights, segment + 1) - low)
    return values


def _take(matrix: Floats, places: Places) -> Floats:
    """One entry [n] of each row of matrix [n, m], at the row's column in `places` [n]."""
    values: Floats = np.take_along_axis(matrix, places[:, None], axis=1)[:, 0]
    return values
