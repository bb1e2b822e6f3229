"""Evaluates a predictive distribution from its CDF at the knots, which is linear in between.

Shapes: cdf [n, k] is the graph's output at `knots` [k], 0 at the first and 1 at the last. Knots do not decrease. A
value v that appears twice among them is an atom: its two heights are F(v-) and F(v), and P(y = v) is the difference.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from ghostless.contract.arrays import Array

Knots = npt.NDArray[np.float32]
Side = Literal["before", "at"]

# Comparing every row with every level at every knot needs n x levels x k bytes, so rows are processed in blocks.
_BLOCK_BYTES = 4_000_000


# A segment with less mass than this is treated as if it had this mass. Otherwise float32 rounding of the CDF would be
# amplified by 1 / mass in nearly empty segments. The level of a returned quantile is therefore exact up to this value.
LEAST_MASS = 1e-3


def quantiles(cdf: Array, knots: Knots, levels: Array, least_mass: float = LEAST_MASS) -> Array:
    """F^-1 at each level, shape [n, levels], as exported graphs compute it.

    Each segment contributes the share of its width that lies below the level, so quantiles never cross. An atom has no
    width: all levels inside it give its value. With a `least_mass` of 0, the result is the smallest value at which F
    reaches the level.
    """
    if not least_mass:
        return _exact_quantiles(cdf, knots, levels)
    low, widths = cdf[:, None, :-1].astype(np.float64), np.diff(knots.astype(np.float64))
    mass = np.maximum(cdf[:, None, 1:] - low, least_mass)
    values = np.empty((len(cdf), len(levels)), dtype=np.float32)
    step = max(1, _BLOCK_BYTES // max(1, 8 * cdf.size))
    for start in range(0, len(levels), step):
        block = levels[start : start + step].astype(np.float64)
        share = np.clip((block[:, None] - low) / mass, 0.0, 1.0)
        values[:, start : start + step] = float(knots[0]) + share @ widths
    return values


def _exact_quantiles(cdf: Array, knots: Knots, levels: Array) -> Array:
    """Quantiles by search, on a CDF that is first made monotone."""
    rows, width = cdf.shape
    rising = np.maximum.accumulate(cdf, axis=1)
    values = np.empty((rows, len(levels)), dtype=np.float32)
    step = max(1, _BLOCK_BYTES // max(1, rows * width))
    for start in range(0, len(levels), step):
        block = np.broadcast_to(levels[start : start + step], (rows, len(levels[start : start + step])))
        values[:, start : start + step] = _invert(rising, knots, block)
    return values


def quantile(cdf: Array, knots: Knots, level: float, least_mass: float = LEAST_MASS) -> Array:
    """F^-1 at one level, shape [n]."""
    return quantiles(cdf, knots, np.asarray([level], dtype=np.float32), least_mass)[:, 0]


def heights_at(cdf: Array, knots: Knots, points: Array, side: Side = "at") -> Array:
    """F at points [p], or F(point-) with side "before", shape [n, p]; 0 below the first knot and 1 above the last.

    The two differ only at atoms, and at the outer knots, where F(first-) = 0 and F(last) = 1.
    """
    right = np.clip(np.searchsorted(knots, points, side="left" if side == "before" else "right"), 1, len(knots) - 1)
    left = right - 1
    width = knots[right] - knots[left]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a point far outside the knots, or an atom
        share = np.clip((points - knots[left]) / width, 0, 1).astype(cdf.dtype)
    # If the segment has no width, the point is an outer knot: below the atom at the first, at or above the one at the
    # last.
    inside = points > knots[left] if side == "before" else points >= knots[left]
    share = np.where(width > 0, share, inside.astype(cdf.dtype))
    # One product per end, so that a share of 1 gives exactly the right height.
    heights: Array = cdf[:, left] * (1 - share) + cdf[:, right] * share
    return heights


def exceedance(cdf: Array, knots: Knots, thresholds: Array) -> Array:
    """P(y > t) for each threshold, shape [n, thresholds]; an atom at t does not exceed t."""
    above: Array = np.clip(1 - heights_at(cdf, knots, thresholds), 0, 1).astype(np.float32)
    return above


def atoms(cdf: Array, knots: Knots) -> tuple[Array, Array]:
    """Values [a] with a point mass, and each row's mass there [n, a]."""
    first = np.flatnonzero(knots[1:] == knots[:-1])
    return knots[first], np.clip(cdf[:, first + 1] - cdf[:, first], 0, 1)


def _invert(rising: Array, knots: Knots, levels: Array) -> Array:
    """F^-1 of each row at its levels [n, l]."""
    passed = (rising[:, None, :] < levels[:, :, None]).sum(axis=2)
    right = np.clip(passed, 1, len(knots) - 1)
    low = np.take_along_axis(rising, right - 1, axis=1)
    high = np.take_along_axis(rising, right, axis=1)
    # A flat part has no unique inverse; its left end is the smallest value that reaches the level.
    with np.errstate(over="ignore"):
        share = np.clip((levels - low) / np.maximum(high - low, np.finfo(np.float32).tiny), 0, 1)
    values: Array = (knots[right - 1] + share * (knots[right] - knots[right - 1])).astype(np.float32)
    return values
