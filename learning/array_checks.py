"""Checks of the arrays that metrics and plots receive; an invalid one raises a ValueError with a clear message."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Tolerance for float32 rounding upstream; larger violations are errors of the caller.
ROUNDING = 1e-6
_CHUNK_ELEMENTS = 2**20


def finite(name: str, value: ArrayLike, ndim: int) -> Floats:
    """`value` as float64 with `ndim` dimensions; empty arrays, NaN and infinity are rejected."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != ndim or array.size == 0:
        raise ValueError(f"{name} must be a non-empty array of {ndim} dimension(s), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has {np.count_nonzero(~np.isfinite(array))} values that are not finite")
    return array


def increasing(name: str, value: ArrayLike) -> Floats:
    """`value` as float64 [n], strictly increasing."""
    array = finite(name, value, 1)
    steps = np.diff(array)
    if not np.all(steps > 0):
        raise ValueError(f"{name} must increase strictly, but does not at index {np.argmin(steps) + 1}")
    return array


def boundaries(name: str, value: ArrayLike) -> Floats:
    """`value` as float64 [n >= 2], strictly increasing: edges of buckets, or a grid."""
    array = increasing(name, value)
    if len(array) < 2:
        raise ValueError(f"{name} must have at least 2 values, got {len(array)}")
    return array


def knots(name: str, value: ArrayLike) -> Floats:
    """`value` as float64 [n >= 2], not decreasing, each value at most twice: the knots of a CDF with atoms."""
    array = finite(name, value, 1)
    steps = np.diff(array)
    if len(array) < 2 or array[0] == array[-1] or np.any(steps < 0):
        raise ValueError(f"{name} must increase, with at least 2 different values, got {array.tolist()[:8]}")
    if np.any((steps[1:] == 0) & (steps[:-1] == 0)):
        raise ValueError(f"{name} must increase; a value may occur twice (an atom), but not more often")
    return array


def reject_decrease(name: str, values: Floats, tolerance: float) -> None:
    """Reject values [n, m] that decrease by more than `tolerance` from one column to the next."""
    steps = np.diff(values, axis=1)
    if steps.size and steps.min() < -tolerance:
        row, column = np.unravel_index(np.argmin(steps), steps.shape)
        raise ValueError(
            f"{name} must not decrease along a row, but row {row} falls by {-steps.min():.3g} "
            f"between columns {column} and {column + 1}"
        )


def bucket_masses(masses: ArrayLike, rows: int, buckets: int) -> Floats:
    """`masses` as float64 [rows, buckets] in [0, 1]; a row may sum to less than 1, never to more."""
    array = finite("masses", masses, 2)
    if array.shape != (rows, buckets):
        raise ValueError(f"masses must be [n, b] = {(rows, buckets)} for y and edges, got {array.shape}")
    if array.min() < -ROUNDING:
        raise ValueError(f"masses must not be negative, got {array.min():.3g}")
    largest = array.sum(axis=1).max()
    if largest > 1 + 100 * ROUNDING:
        raise ValueError(f"masses of a row must not sum to more than 1, got {largest:.6g}")
    return np.clip(array, 0.0, 1.0)


def distribution_function(cdf: ArrayLike, rows: int, points: int) -> NDArray[Any]:
    """`cdf` as [rows, points] in its own dtype, because a float64 copy may not fit into memory."""
    array = np.asarray(cdf)
    if array.shape != (rows, points):
        raise ValueError(f"cdf must be [n, g] = {(rows, points)} for y and grid, got {array.shape}")
    for chunk in row_chunks(rows, points):
        block = finite("cdf", array[chunk], 2)
        if block.min() < -ROUNDING or block.max() > 1 + ROUNDING:
            raise ValueError(f"cdf must lie in [0, 1], got [{block.min():.6g}, {block.max():.6g}]")
        reject_decrease("cdf", block, ROUNDING)
    return array


def row_chunks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows, such that a temporary array with this many columns takes a few megabytes."""
    step = max(1, _CHUNK_ELEMENTS // columns)
    return (slice(start, start + step) for start in range(0, rows, step))
