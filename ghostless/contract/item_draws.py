"""A standard normal number for every item and seed, from a hash that any language can repeat.

Thompson scoring draws once per item, not once per row: an item's number depends only on the seed and on its id columns,
so it is the same in every request, at every position, in every batch and on every server. All arithmetic is on unsigned
64-bit integers, modulo 2^64:

    mix(x) = SplitMix64:  x += 0x9E3779B97F4A7C15
                          x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
                          x = (x ^ (x >> 27)) * 0x94D049BB133111EB
                          mix = x ^ (x >> 31)
    h = mix(seed);  for each id column, in the order in which GetModel lists the features:  h = mix(h ^ v)
    v: an int64 in two's complement; the CRC-32 (zlib, IEEE 802.3) of a string's UTF-8 bytes; the bits of a float32 a =
    (h >> 32) + 0.5, b = h & 0xFFFFFFFF e = sqrt(-2 ln(a / 2^32)) cos(2 pi b / 2^32) (Box-Muller)
"""

from collections.abc import Iterable
from zlib import crc32

import numpy as np
import numpy.typing as npt

from ghostless.contract.arrays import Array

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_HALF_BITS, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_HALF_RANGE = 2.0**32


def hash_rows(seed: int, columns: Iterable[Array]) -> Words:
    """h of each row [n] of the items' id columns [n], which are int64, float32 or strings."""
    # An array, because numpy warns about overflow of scalars.
    words = _mix(np.array([seed], dtype=np.uint64))
    for column in columns:
        words = _mix(words ^ _words(column))
    return words


def standard_normal(seed: int, columns: Iterable[Array]) -> npt.NDArray[np.float64]:
    """e of each row, [n]."""
    words = hash_rows(seed, columns)
    radius = np.sqrt(-2.0 * np.log(((words >> _HALF_BITS).astype(np.float64) + 0.5) / _HALF_RANGE))
    drawn: npt.NDArray[np.float64] = radius * np.cos((2.0 * np.pi / _HALF_RANGE) * (words & _LOW_HALF))
    return drawn


def _words(column: Array) -> Words:
    if column.dtype.kind in "OU":
        return np.fromiter(map(crc32, map(str.encode, column.tolist())), np.uint64, len(column))
    if column.dtype.kind == "f":
        return column.astype(np.float32, copy=False).view(np.uint32).astype(np.uint64)
    return column.astype(np.int64, copy=False).view(np.uint64)


def _mix(words: Words) -> Words:
    words = words + _GOLDEN
    words = (words ^ (words >> _SHIFTS[0])) * _FIRST
    words = (words ^ (words >> _SHIFTS[1])) * _SECOND
    mixed: Words = words ^ (words >> _SHIFTS[2])
    return mixed
