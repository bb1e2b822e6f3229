"""Takes the target's range from the data if the schema does not have it."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from learning.errors import DataError
from learning.schema import Schema

# Share of rows that may be outside the range at each end.
BEYOND = 0.0005
# If the minimum or maximum is this close to the quantile at BEYOND, as a share of the range, it becomes the end of the
# range, and nothing is clipped at this end.
NEAR = 0.05


def with_range(schema: Schema, raw: ArrayLike) -> Schema:
    """The schema with a finite range, for raw targets [n].

    A missing end is the 0.05% or 99.95% quantile, so that an atom with 1% of the rows is always inside, or the minimum
    or maximum if it is near that quantile. The range is a property of the whole file.
    """
    target = schema.target
    if target.is_bounded:
        return schema
    y = np.asarray(raw, np.float64)
    inside = y[(y >= target.low) & (y <= target.high)]
    if not len(inside):
        raise DataError(f"target '{target.name}': no value is in the schema's range; give low and high")
    low, high = (float(np.quantile(inside, level, method="nearest")) for level in (BEYOND, 1.0 - BEYOND))
    least, most = float(inside.min()), float(inside.max())
    low = least if low - least <= NEAR * (high - low) else low
    high = most if most - high <= NEAR * (high - low) else high
    low = low if math.isinf(target.low) else target.low
    high = high if math.isinf(target.high) else target.high
    # Targets are float32, so the ends must be float32 too, or the largest target would be outside.
    low, high = float(np.float32(low)), float(np.float32(high))
    if not low < high:
        raise DataError(f"target '{target.name}': all values are {low:g}; there is nothing to predict")
    return replace(schema, target=replace(target, low=low, high=high))


def used_share(sample: ArrayLike, low: float, high: float) -> tuple[float, float, float]:
    """The interval with 99.9% of a sample of targets: its ends, and its width as a share of [low, high]."""
    first, last = (float(value) for value in np.quantile(np.asarray(sample, np.float64), [BEYOND, 1.0 - BEYOND]))
    return first, last, (last - first) / (high - low)
