"""The target's range where the schema does not give it: taken from the data."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from learning.errors import DataError
from learning.schema import Schema

# The share of rows that may lie beyond either end.
BEYOND = 0.0005
# An end of the data this close to that quantile, as a share of the range, becomes the end: nothing is clipped there.
NEAR = 0.05


def with_range(schema: Schema, raw: ArrayLike) -> Schema:
    """The schema with a finite range, for raw targets [n].

    A missing end is the 0.05% or the 99.95% quantile, which an atom of a percent always lies inside; it is the data's
    own end where that is near. The range is a property of the whole file, like its vocabulary of columns.
    """
    target = schema.target
    if target.is_bounded:
        return schema
    y = np.asarray(raw, np.float64)
    inside = y[(y >= target.low) & (y <= target.high)]
    if not len(inside):
        raise DataError(f"target '{target.name}': no value lies in the schema's range; give low and high")
    low, high = (float(np.quantile(inside, level, method="nearest")) for level in (BEYOND, 1.0 - BEYOND))
    least, most = float(inside.min()), float(inside.max())
    low = least if low - least <= NEAR * (high - low) else low
    high = most if most - high <= NEAR * (high - low) else high
    low = low if math.isinf(target.low) else target.low
    high = high if math.isinf(target.high) else target.high
    # Targets are float32: an end must be one, or the largest of them would lie outside.
    low, high = float(np.float32(low)), float(np.float32(high))
    if not low < high:
        raise DataError(f"target '{target.name}': all values are {low:g}; there is nothing to predict")
    return replace(schema, target=replace(target, low=low, high=high))


def used_share(sample: ArrayLike, low: float, high: float) -> tuple[float, float, float]:
    """Where 99.9% of a sample of targets lie: from, to, and that as a share of [low, high]."""
    first, last = (float(value) for value in np.quantile(np.asarray(sample, np.float64), [BEYOND, 1.0 - BEYOND]))
    return first, last, (last - first) / (high - low)
