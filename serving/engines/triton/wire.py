"""Jobs as ModelInfer messages with raw contents, and the answers back as arrays.

Triton's batcher wants the rows before the dims of its config, so [n] travels as [n, 1] (see export/triton_config.py).
"""

import struct
from collections.abc import Sequence

import numpy as np
from tritonclient.grpc import service_pb2 as oip

from serving.engines.interface import Array, ModelVersion, Tensors
from serving.errors import EngineError
from serving.metadata import FeatureType
from serving.tensors import DATATYPES

_DTYPES: dict[FeatureType, str] = {"int64": "<i8", "float32": "<f4"}
_LENGTH = struct.Struct("<I")


def encode(model: ModelVersion, inputs: Tensors, wanted: Sequence[str], rows: slice, timeout_s: float | None) -> bytes:
    """Some of the rows as a ModelInferRequest that may wait in Triton's queue for so long."""
    request = oip.ModelInferRequest(model_name=model.name, model_version=str(model.version))
    for feature in model.metadata.features:
        values = inputs[feature.name][rows]
        request.inputs.add(name=feature.name, datatype=DATATYPES[feature.type], shape=(len(values), 1))
        request.raw_input_contents.append(_raw(values, feature.type))
    for name in wanted:
        request.outputs.add(name=name)
    if timeout_s is not None:
        # Triton takes 0 for "no timeout".
        request.parameters["timeout"].int64_param = max(1, int(timeout_s * 1e6))
    return bytes(request.SerializeToString())


def decode(message: bytes, model: ModelVersion, wanted: Sequence[str], rows: int) -> dict[str, Array]:
    """The wanted outputs, rows leading."""
    response = oip.ModelInferResponse.FromString(message)
    widths = model.metadata.widths()
    outputs = {
        tensor.name: (list(tensor.shape), raw)
        for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }
    result = {}
    for name in wanted:
        shape, raw = outputs.get(name, ([], b""))
        expected = [rows, widths.get(name, 1)]
        if shape != expected:
            raise EngineError(f"Triton answered {name} of model {model.name!r} with shape {shape}, not {expected}")
        values = np.frombuffer(raw, dtype="<f4")
        result[name] = values.reshape(expected) if name in widths else values
    return result


def join(parts: Sequence[Tensors]) -> Tensors:
    """The pieces of one job below each other again."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _raw(values: Array, kind: FeatureType) -> bytes:
    if kind != "string":
        return values.astype(_DTYPES[kind], copy=False).tobytes()
    texts = (str(value).encode() for value in values)
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)
