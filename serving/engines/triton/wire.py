"""Jobs as ModelInfer messages with raw contents, and the answers back as arrays.

Messages of one shape (model version, outputs, number of rows) differ in their tensors' raw bytes only. So the rest is
made, or understood, by the generated code once and cached: a message costs a copy of its tensors, an answer none.

Triton's batcher wants the rows before the dims of its config, so [n] travels as [n, 1] (see export/triton_config.py).
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
# Shapes that are cached of a model version; past it they are made anew.
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
        """Some of the rows as a ModelInferRequest that may wait in Triton's queue for so long."""
        parts = [self._head(wanted, rows.stop - rows.start)]
        if timeout_s is not None:
            parts.append(_timeout(timeout_s))
        for feature in self._model.metadata.features:
            raw = _raw(inputs[feature.name][rows], feature.type)
            parts += (header(_RAW_INPUT, len(raw)), raw)
        return b"".join(parts)

    def decode(self, message: bytes, wanted: tuple[str, ...], rows: int) -> dict[str, Array]:
        """The wanted outputs, rows leading; views of the message."""
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
        """Each output's raw bytes and the shape of its array, in the message's order."""
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
    """An output's place in the message."""

    header: bytes
    header_at: int
    values_at: int
    count: int
    shape: Sequence[int]


class _ResponseLayout:
    """Where the outputs lie in a ModelInferResponse of one shape: raw contents are its last field."""

    def __init__(self, message: bytes, columns: dict[str, tuple[bytes, Sequence[int]]]) -> None:
        self._length = len(message)
        tail = sum(len(header(_RAW_OUTPUT, len(raw))) + len(raw) for raw, _ in columns.values())
        self._head = message[: len(message) - tail]
        self._fields = dict(self._places(columns))
        if not self.fits(message):
            raise EngineError("Triton's response does not end with raw_output_contents")

    def fits(self, message: bytes) -> bool:
        """Whether all but the numbers is as in the message that this was made from."""
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
    """The pieces of one job below each other again."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _timeout(timeout_s: float) -> bytes:
    request = oip.ModelInferRequest()
    # Triton takes 0 for "no timeout".
    request.parameters["timeout"].int64_param = max(1, int(timeout_s * 1e6))
    return bytes(request.SerializeToString())


def _raw(values: Array, kind: FeatureType) -> bytes:
    if kind != "string":
        return values.astype(_DTYPES[kind], copy=False).tobytes()
    texts = (str(value).encode() for value in values)
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)
