"""Reading the predictive distribution between its exported points: the CDF at the knots, linear in between.

All shapes: cdf [n, k] is the graph's output at `knots` [k], 0 at the first and 1 at the last.
"""

import numpy as np
import numpy.typing as npt

from ghostless.contract.arrays import Array

Knots = npt.NDArray[np.float32]

# Comparing every row with every level at every knot takes n x levels x k bytes at a time.
_BLOCK_BYTES = 4_000_000


def quantiles(cdf: Array, knots: Knots, levels: Array) -> Array:
    """F^-1 at each level, shape [n, levels]; never crossing, since F is made monotone first."""
    rows, width = cdf.shape
    rising = np.maximum.accumulate(cdf, axis=1)
    values = np.empty((rows, len(levels)), dtype=np.float32)
    step = max(1, _BLOCK_BYTES // max(1, rows * width))
    for start in range(0, len(levels), step):
        block = np.broadcast_to(levels[start : start + step], (rows, len(levels[start : start + step])))
        values[:, start : start + step] = _invert(rising, knots, block)
    return values


def quantile(cdf: Array, knots: Knots, level: float) -> Array:
    """F^-1 at one level, shape [n]."""
    return quantiles(cdf, knots, np.asarray([level], dtype=np.float32))[:, 0]


def draws(cdf: Array, knots: Knots, seed: int) -> Array:
    """One draw from each row's distribution, shape [n]; the same seed gives the same draws."""
    uniform = np.random.default_rng(seed).random((len(cdf), 1), dtype=np.float32)
    return _invert(np.maximum.accumulate(cdf, axis=1), knots, uniform)[:, 0]


def exceedance(cdf: Array, knots: Knots, thresholds: Array) -> Array:
    """P(y > t) for each threshold, shape [n, thresholds]."""
    right = np.clip(np.searchsorted(knots, thresholds, side="right"), 1, len(knots) - 1)
    left = right - 1
    with np.errstate(over="ignore"):  # a threshold far outside the knots
        share = np.clip((thresholds - knots[left]) / (knots[right] - knots[left]), 0, 1).astype(np.float32)
    below = cdf[:, left] * (1 - share) + cdf[:, right] * share
    above: Array = np.clip(1 - below, 0, 1).astype(np.float32)
    return above


def _invert(rising: Array, knots: Knots, levels: Array) -> Array:
    """F^-1 of levels [n, l], by row."""
    passed = (rising[:, None, :] <= levels[:, :, None]).sum(axis=2)
    right = np.clip(passed, 1, len(knots) - 1)
    low = np.take_along_axis(rising, right - 1, axis=1)
    high = np.take_along_axis(rising, right, axis=1)
    # A flat stretch has no inverse of its own; its left end is as good as any.
    with np.errstate(over="ignore"):
        share = np.clip((levels - low) / np.maximum(high - low, np.finfo(np.float32).tiny), 0, 1)
    values: Array = (knots[right - 1] + share * (knots[right] - knots[right - 1])).astype(np.float32)
    return values
