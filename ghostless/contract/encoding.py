"""Writes fields directly in protobuf's wire format.

A packed `repeated float` is a sequence of little-endian floats on the wire, so an array is written as tag, length and
its bytes: 2 us for 256 x 19 values, instead of 163 us with the generated classes. Clients read it with the generated
code, and so do the tests.
"""

from functools import lru_cache

import numpy as np

from ghostless.contract.arrays import Array

_VARINT, _LENGTH_DELIMITED = 0, 2


def varint(number: int) -> bytes:
    """Encode a number with seven bits per byte, lowest first; the high bit means that more bytes follow."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@lru_cache(maxsize=4096)
def header(field: int, length: int) -> bytes:
    """Tag and length of a string, message or packed field; `length` bytes must follow."""
    return varint(field << 3 | _LENGTH_DELIMITED) + varint(length)


def varint_field(field: int, number: int) -> bytes:
    """A field with a non-negative integer."""
    return varint(field << 3 | _VARINT) + varint(number)


def float_payload(field: int, values: Array) -> bytes:
    """A float32 array as a packed `repeated float` field; a matrix is written row-major."""
    return header(field, values.nbytes) + values.tobytes() if values.size else b""


def index_payload(field: int, values: Array) -> bytes:
    """An array as a packed `repeated uint32` field."""
    payload = varints(values)
    return header(field, len(payload)) + payload


def varints(values: Array) -> bytes:
    """The concatenated varints of `values` (non-negative, below 2^35)."""
    numbers = values.astype(np.uint64)[:, None]
    shifts = np.arange(0, 35, 7, dtype=np.uint64)
    groups = numbers >> shifts
    more = groups > 0x7F
    encoded = (groups & 0x7F | more.astype(np.uint64) << 7).astype(np.uint8)
    used = (groups > 0) | (shifts == 0)
    return bytes(encoded[used].tobytes())
