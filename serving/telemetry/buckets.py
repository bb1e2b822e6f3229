"""Histogram buckets, and the number of values in each, for thousands of values at once.

A ranking server predicts hundreds of thousands of rows per second, so values are counted per bucket in numpy.
"""

import numpy as np
import numpy.typing as npt

from ghostless.contract.arrays import Array

# Bits of the float32 1.0. Adding 1 << 22 to the bits of a power of two gives 1.5 times that power.
_ONE = 0x3F800000
_STEP = 22
_UNSIGNED = 0x7FFFFFFF


class LogBuckets:
    """Buckets with upper bounds 2^low, 1.5 x 2^low, 2^(low + 1), ... 2^high, and one without an upper bound.

    The bits of a positive float32, read as an integer, increase with its value. The top ten are the exponent and half
    an octave, so a shift gives the bucket; a binary search would cost ten times as much.
    """

    def __init__(self, low: int, high: int) -> None:
        self.bounds = (*(factor * 2.0**power for power in range(low, high) for factor in (1.0, 1.5)), 2.0**high)
        self._first = ((_ONE >> _STEP) + 2 * low) - 1
        self.size = len(self.bounds) + 1

    def places(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """Index of each value's bucket; the values are not negative."""
        # Subtract one, so that a value equal to a bound is in the bucket that ends there, as in Prometheus.
        places = np.ascontiguousarray(values).view(np.int32) & _UNSIGNED
        places -= 1
        places >>= _STEP
        places -= self._first
        return np.clip(places, 0, self.size - 1, out=places)

    def count(self, values: npt.NDArray[np.float32]) -> Array:
        return np.bincount(self.places(values), minlength=self.size)
