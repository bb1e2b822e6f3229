"""Encodes jobs as ModelInfer messages with raw tensors, and decodes the responses to arrays.

Messages of one shape (model version, outputs, number of rows) differ only in the raw bytes of their tensors. The rest
is built, or parsed, by the generated code once and cached: a request costs a copy of its tensors, a response none.

Triton's batcher expects the rows before the dims of its config, so [n] is sent as [n, 1] (see export/triton_config.py).
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as oip

from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.encoding import header
from ghostless.contract.metadata import FeatureType
from serving.dataplane.tensors import DATATYPES
from serving.engines.interface import ModelVersion
from serving.errors import EngineError

_DTYPES: dict[FeatureType, str] = {"int64": "<i8", "float32": "<f4"}
_LENGTH = struct.Struct("<I")
_RAW_INPUT = oip.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_RAW_OUTPUT = oip.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER
# Maximum number of cached shapes per model version; others are built each time.
_MAX_SHAPES = 1024

Shape = tuple[tuple[str, ...], int]  # outputs, rows


class Wire:
    """The messages of one model version."""

    def __init__(self, model: ModelVersion) -> None:
        self._model = model
        self._widths = model.metadata.widths()
        self._heads: dict[Shape, bytes] = {}
        self._layouts: dict[Shape, _ResponseLayout] = {}

    def encode(self, inputs: Tensors, wanted: tuple[str, ...], rows: slice, timeout_s: float | None) -> bytes:
        """Encode some of the rows as a ModelInferRequest that may wait in Triton's queue for `timeout_s`."""
        parts = [self._head(wanted, rows.stop - rows.start)]
        if timeout_s is not None:
            parts.append(_timeout(timeout_s))
        for feature in self._model.metadata.features:
            raw = _raw(inputs[feature.name][rows], feature.type)
            parts += (header(_RAW_INPUT, len(raw)), raw)
        return b"".join(parts)

    def decode(self, message: bytes, wanted: tuple[str, ...], rows: int) -> dict[str, Array]:
        """The outputs `wanted`, [rows, ...] each, as views of the message."""
        layout = self._layouts.get((wanted, rows))
        if layout is None or not layout.fits(message):
            layout = _ResponseLayout(message, self._checked_columns(message, wanted, rows))
            self._cache(self._layouts, (wanted, rows), layout)
        return layout.read(message, wanted)

    def _head(self, wanted: tuple[str, ...], rows: int) -> bytes:
        head = self._heads.get((wanted, rows))
        if head is None:
            request = oip.ModelInferRequest(model_name=self._model.name, model_version=str(self._model.version))
            for feature in self._model.metadata.features:
                request.inputs.add(name=feature.name, datatype=DATATYPES[feature.type], shape=(rows, 1))
            for name in wanted:
                request.outputs.add(name=name)
            head = bytes(request.SerializeToString())
            self._cache(self._heads, (wanted, rows), head)
        return head

    def _checked_columns(self, message: bytes, wanted: tuple[str, ...], rows: int) -> dict[str, tuple[bytes, Any]]:
        """The raw bytes of each output and the shape of its array, in the message's order."""
        response = oip.ModelInferResponse.FromString(message)
        sent = dict(zip((tensor.name for tensor in response.outputs), response.raw_output_contents, strict=True))
        shapes = {tensor.name: list(tensor.shape) for tensor in response.outputs}
        for name in wanted:
            expected = [rows, self._widths.get(name, 1)]
            if shapes.get(name, []) != expected:
                raise EngineError(
                    f"Triton answered {name} of model {self._model.name!r} with shape {shapes.get(name, [])}, "
                    f"not {expected}"
                )
        return {name: (raw, shapes[name] if name in self._widths else [rows]) for name, raw in sent.items()}

    @staticmethod
    def _cache(cache: dict[Shape, Any], shape: Shape, made: Any) -> None:
        if len(cache) >= _MAX_SHAPES:
            cache.clear()
        cache[shape] = made


@dataclass(frozen=True)
class _Field:
    """Position of an output in the message."""

    header: bytes
    header_at: int
    values_at: int
    count: int
    shape: Sequence[int]


class _ResponseLayout:
    """Positions of the outputs in a ModelInferResponse of one shape; the raw tensors are its last field."""

    def __init__(self, message: bytes, columns: dict[str, tuple[bytes, Sequence[int]]]) -> None:
        self._length = len(message)
        tail = sum(len(header(_RAW_OUTPUT, len(raw))) + len(raw) for raw, _ in columns.values())
        self._head = message[: len(message) - tail]
        self._fields = dict(self._places(columns))
        if not self.fits(message):
            raise EngineError("Triton's response does not end with raw_output_contents")

    def fits(self, message: bytes) -> bool:
        """Whether the message equals the one that this layout was built from, except for the numbers."""
        return (
            len(message) == self._length
            and message.startswith(self._head)
            and all(message.startswith(field.header, field.header_at) for field in self._fields.values())
        )

    def read(self, message: bytes, wanted: Sequence[str]) -> dict[str, Array]:
        result = {}
        for name in wanted:
            field = self._fields[name]
            values = np.frombuffer(message, dtype="<f4", count=field.count, offset=field.values_at)
            result[name] = values.reshape(field.shape)
        return result

    def _places(self, columns: dict[str, tuple[bytes, Sequence[int]]]) -> Iterator[tuple[str, _Field]]:
        at = len(self._head)
        for name, (raw, shape) in columns.items():
            literal = header(_RAW_OUTPUT, len(raw))
            yield name, _Field(literal, at, at + len(literal), len(raw) // 4, shape)
            at += len(literal) + len(raw)


def join(parts: Sequence[Tensors]) -> Tensors:
    """The concatenated parts of one job."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _timeout(timeout_s: float) -> bytes:
    request = oip.ModelInferRequest()
    # For Triton, 0 means "no timeout".
    request.parameters["timeout"].int64_param = max(1, int(timeout_s * 1e6))
    return bytes(request.SerializeToString())


def _raw(values: Array, kind: FeatureType) -> bytes:
    if kind != "string":
        return values.astype(_DTYPES[kind], copy=False).tobytes()
    texts = (str(value).encode() for value in values)
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)
