"""Converts tensors of the Open Inference Protocol to numpy and back: raw contents, as Triton's clients send them, or
typed ones."""

import struct
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as oip

from ghostless.contract.arrays import Array
from ghostless.contract.errors import InvalidRequestError
from ghostless.contract.metadata import FeatureSpec, FeatureType

DATATYPES: dict[FeatureType, str] = {"int64": "INT64", "float32": "FP32", "string": "BYTES"}
_TYPED_FIELDS: dict[FeatureType, str] = {
    "int64": "int64_contents",
    "float32": "fp32_contents",
    "string": "bytes_contents",
}
_DTYPES: dict[FeatureType, str] = {"int64": "<i8", "float32": "<f4"}
_LENGTH = struct.Struct("<I")


def read_tensor(feature: FeatureSpec, tensor: Any, raw: bytes | None) -> Array:
    """The tensor's values, shape [rows]; `raw` is None if the contents are typed."""
    rows = _rows(feature.name, tensor.shape)
    if tensor.datatype != DATATYPES[feature.type]:
        raise InvalidRequestError(
            f"input {feature.name!r} must be {DATATYPES[feature.type]}, got {tensor.datatype or 'no datatype'}"
        )
    values = _typed(feature, tensor.contents) if raw is None else _raw(feature, raw)
    if len(values) != rows:
        raise InvalidRequestError(f"input {feature.name!r} has shape [{rows}] but {len(values)} values")
    if feature.type == "float32" and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidRequestError(f"input {feature.name!r} must be finite, row {row} is {values[row]}")
    return values


def _rows(name: str, shape: Any) -> int:
    """Number of rows of a shape [n], or [n, 1] from clients that send batches of one-element tensors."""
    dimensions = list(shape)
    if len(dimensions) == 2 and dimensions[1] == 1:
        dimensions = dimensions[:1]
    if len(dimensions) != 1 or dimensions[0] < 1:
        raise InvalidRequestError(f"input {name!r} must have shape [rows] or [rows, 1], got {list(shape)}")
    return int(dimensions[0])


def _typed(feature: FeatureSpec, contents: oip.InferTensorContents) -> Array:
    values = getattr(contents, _TYPED_FIELDS[feature.type])[:]
    if feature.type == "string":
        return _texts(feature.name, values)
    return np.array(values, dtype=_DTYPES[feature.type])


def _raw(feature: FeatureSpec, raw: bytes) -> Array:
    if feature.type == "string":
        return _texts(feature.name, _split_bytes(feature.name, raw))
    dtype = np.dtype(_DTYPES[feature.type])
    if len(raw) % dtype.itemsize:
        raise InvalidRequestError(
            f"input {feature.name!r} has {len(raw)} raw bytes, which is not a multiple of {dtype.itemsize}"
        )
    return np.frombuffer(raw, dtype=dtype)


def _split_bytes(name: str, raw: bytes) -> list[bytes]:
    """Split raw BYTES: each element is preceded by its length in 4 little-endian bytes."""
    values: list[bytes] = []
    offset = 0
    while offset < len(raw):
        end = offset + _LENGTH.size
        if end <= len(raw):
            (length,) = _LENGTH.unpack_from(raw, offset)
            end += length
        if end > len(raw):
            raise InvalidRequestError(f"input {name!r}: raw BYTES end in the middle of element {len(values)}")
        values.append(raw[offset + _LENGTH.size : end])
        offset = end
    return values


def _texts(name: str, values: list[bytes]) -> Array:
    try:
        return np.array([value.decode() for value in values], dtype=np.object_)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"input {name!r} must be UTF-8 text: {error}") from error
