"""Request columns to numpy, once and without a loop over rows."""

import struct
from typing import Any

import numpy as np

from ghostless.contract.arrays import Array
from ghostless.contract.errors import InvalidRequestError
from ghostless.contract.metadata import FeatureSpec
from ghostless.v1 import prediction_pb2 as pb
from serving.engines.interface import all_finite

_KINDS = {"int64": "int64s", "float32": "floats", "string": "strings"}
_FLOATS_TAG = 0x0A  # field 1, length-delimited: FloatList.values, packed


def to_array(feature: FeatureSpec, column: pb.Column) -> Array:
    """The column's values, shape [rows], in the type that the graph takes."""
    kind = column.WhichOneof("kind")
    expected = _KINDS[feature.type]
    if kind != expected:
        came = f"came as {kind}" if kind else "came without values"
        raise InvalidRequestError(f"feature {feature.name!r} is {feature.type}: send it as {expected}, it {came}")
    if kind == "int64s":
        numbers = column.int64s.values[:]
        # Two thirds of what np.fromiter takes.
        return np.frombuffer(struct.pack(f"{len(numbers)}q", *numbers), dtype=np.int64)
    if kind == "strings":
        return np.array(column.strings.values[:], dtype=np.object_)
    values = _floats(column.floats)
    if not all_finite(values):
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidRequestError(f"feature {feature.name!r} must be finite, row {row} is {values[row]}")
    return values


def _floats(message: pb.FloatList) -> Array:
    """Packed floats are little-endian on the wire, so serialising them again and reading those bytes as they are
    takes a sixth of the time of going through Python floats (2 us against 12 for 256)."""
    count = len(message.values)
    wire = message.SerializeToString()
    offset = len(wire) - 4 * count
    # 1 byte of tag and 1 to 5 of length; more means that the client sent fields unknown to us.
    if wire[:1] == bytes((_FLOATS_TAG,)) and offset == 1 + _varint_length(4 * count):
        return np.frombuffer(wire, dtype="<f4", offset=offset)
    return np.array(message.values[:], dtype=np.float32)


def _varint_length(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def broadcast(values: Array, rows: int) -> Array:
    """One row's value for all candidates, shape [rows]."""
    return values.repeat(rows)


_NONE: Array = np.empty(0, dtype=np.float32)


def finite_floats(values: Any, what: str, at_most: int) -> Array:
    """A `repeated float` of the request, `what` by name."""
    if not values:
        return _NONE
    if len(values) > at_most:
        raise InvalidRequestError(f"{len(values)} {what}, at most {at_most} are allowed")
    array = np.array(values[:], dtype=np.float32)
    if not np.isfinite(array).all():
        raise InvalidRequestError(f"{what} must be finite, got {array[~np.isfinite(array)][0]}")
    return array
