"""The Open Inference Protocol's REST API (/v2) with Triton's binary tensors, as tritonclient.http calls it."""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as oip

from serving.console.backend import Backend
from serving.console.proto_json import float_list, message_json
from serving.console.responses import HttpError, Request, Response, as_json, parse_object

HEADER_LENGTH = "inference-header-content-length"
_DTYPES: Mapping[str, str] = {
    "BOOL": "?",
    **{
        f"{word}{bits}": f"<{letter}{bits // 8}"
        for word, letter in (("INT", "i"), ("UINT", "u"))
        for bits in (8, 16, 32, 64)
    },
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
_LENGTH = struct.Struct("<I")


class OpenInference:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def live(self, request: Request, authorization: str) -> Response:
        found = self._call(request, "ServerLive", oip.ServerLiveRequest(), oip.ServerLiveResponse, authorization)
        return _state(found.live, "live")

    def ready(self, request: Request, authorization: str) -> Response:
        found = self._call(request, "ServerReady", oip.ServerReadyRequest(), oip.ServerReadyResponse, authorization)
        return _state(found.ready, "ready")

    def metadata(self, request: Request, authorization: str) -> Response:
        kind = oip.ServerMetadataResponse
        found = self._call(request, "ServerMetadata", oip.ServerMetadataRequest(), kind, authorization)
        extensions = [*found.extensions, "binary_tensor_data"]
        return Response(as_json({"name": found.name, "version": found.version, "extensions": extensions}))

    def index(self, request: Request, authorization: str) -> Response:
        kind = oip.RepositoryIndexResponse
        found = self._call(request, "RepositoryIndex", oip.RepositoryIndexRequest(), kind, authorization)
        listed = [
            {"name": each.name, "version": each.version, "state": each.state, "reason": each.reason}
            for each in found.models
        ]
        return Response(as_json(listed))

    def model_ready(self, request: Request, authorization: str) -> Response:
        message = oip.ModelReadyRequest(**_target(request))
        found = self._call(request, "ModelReady", message, oip.ModelReadyResponse, authorization)
        # The model may be unknown or not loaded: the server does not say which.
        return Response(as_json({"ready": found.ready}), status=200 if found.ready else 404)

    def model(self, request: Request, authorization: str) -> Response:
        message = oip.ModelMetadataRequest(**_target(request))
        found = self._call(request, "ModelMetadata", message, oip.ModelMetadataResponse, authorization)
        return Response(message_json(found))

    def config(self, request: Request, authorization: str) -> Response:
        message = oip.ModelConfigRequest(**_target(request))
        found = self._call(request, "ModelConfig", message, oip.ModelConfigResponse, authorization)
        return Response(message_json(found.config))

    def statistics(self, request: Request, authorization: str) -> Response:
        message = oip.ModelStatisticsRequest(**_target(request))
        found = self._call(request, "ModelStatistics", message, oip.ModelStatisticsResponse, authorization)
        return Response(message_json(found))

    def infer(self, request: Request, authorization: str) -> Response:
        content, tail = _split(request)
        message = oip.ModelInferRequest(
            model_name=_target(request)["name"], model_version=_target(request)["version"], id=_text(content, "id")
        )
        for tensor in _tensors(content, "inputs"):
            tail = _add_input(message, tensor, tail)
        if tail:
            raise _wrong(f"{len(tail)} bytes follow the last binary tensor; binary_data_size says how long each one is")
        parameters = _parameters(content)
        is_binary = {name: bool(parameters.get("binary_data_output", False)) for name in ("",)}
        for tensor in _tensors(content, "outputs") if "outputs" in content else ():
            name = _text(tensor, "name")
            message.outputs.add(name=name)
            is_binary[name] = bool(_parameters(tensor).get("binary_data", is_binary[""]))
        found = self._call(request, "ModelInfer", message, oip.ModelInferResponse, authorization)
        return _encoded(found, is_binary)

    def _call(self, request: Request, method: str, message: Any, kind: Any, authorization: str) -> Any:
        return self._backend.inference(request, method, message, kind, authorization)


def _state(is_so: bool, word: str) -> Response:
    """200 or 503. Triton answers 400 for a negative state, but load balancers expect 503, and clients take every status
    except 200 for a negative one."""
    return Response(as_json({word: is_so}), status=200 if is_so else 503)


def _target(request: Request) -> dict[str, str]:
    return {"name": request.parts[0], "version": request.parts[1] if len(request.parts) > 1 else ""}


def _split(request: Request) -> tuple[dict[str, Any], bytes]:
    """The JSON, and the binary tensors that follow it."""
    text = request.headers.get(HEADER_LENGTH)
    if text is None:
        return parse_object(request.body), b""
    if not (text.isascii() and text.isdecimal() and int(text[:12]) <= len(request.body)):
        raise _wrong(f"Inference-Header-Content-Length is {text[:20]!r}, the body has {len(request.body)} bytes")
    length = int(text)
    return parse_object(request.body[:length]), request.body[length:]


def _add_input(message: Any, tensor: dict[str, Any], tail: bytes) -> bytes:
    """Add one input with raw contents; returns the rest of the binary data."""
    name, datatype = _text(tensor, "name"), _text(tensor, "datatype")
    shape = tensor.get("shape")
    if not isinstance(shape, list) or any(
        isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 1 << 31 for n in shape
    ):
        raise _wrong(f"input {name!r}: shape must be a list of whole numbers from 0")
    size = _parameters(tensor).get("binary_data_size")
    if size is None:
        raw = _raw(name, datatype, _flat(name, tensor.get("data")))
    elif isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(tail):
        raise _wrong(f"input {name!r}: binary_data_size is {size!r}, {len(tail)} bytes are left")
    else:
        raw, tail = tail[:size], tail[size:]
    message.inputs.add(name=name, datatype=datatype, shape=shape)
    message.raw_input_contents.append(raw)
    return tail


def _flat(name: str, data: Any) -> list[Any]:
    """Values in row-major order, from a list that may be nested."""
    if not isinstance(data, list):
        raise _wrong(f"input {name!r}: send `data` as a list, or binary_data_size and binary data")
    values: list[Any] = data
    for _ in range(8):
        if not any(isinstance(each, list) for each in values):
            return values
        values = [value for each in values for value in (each if isinstance(each, list) else [each])]
    raise _wrong(f"input {name!r}: `data` is nested more than 8 deep")


def _raw(name: str, datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        if any(not isinstance(value, str) for value in values):
            raise _wrong(f"input {name!r} is BYTES: send texts")
        encoded = [value.encode("utf-8", "surrogatepass") for value in values]
        return b"".join(_LENGTH.pack(len(value)) + value for value in encoded)
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise _wrong(f"input {name!r}: datatype {datatype[:20]!r} is not one of BYTES, {', '.join(_DTYPES)}")
    is_whole = dtype[1:2] in ("i", "u")
    for value in values:
        if not isinstance(value, int | float) or (is_whole and isinstance(value, float)):
            raise _wrong(f"input {name!r} is {datatype}, it has {str(value)[:40]!r}")
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype=dtype).tobytes()
    except (OverflowError, ValueError) as error:
        raise _wrong(f"input {name!r} is {datatype}: {error}") from error


def _encoded(found: Any, is_binary: Mapping[str, bool]) -> Response:
    outputs, tail = [], []
    for output, raw in zip(found.outputs, found.raw_output_contents, strict=True):
        shape = json.dumps(list(output.shape))
        head = f'{{"name":{json.dumps(output.name)},"datatype":{json.dumps(output.datatype)},"shape":{shape}'
        if is_binary.get(output.name, is_binary[""]):
            tail.append(raw)
            outputs.append(f'{head},"parameters":{{"binary_data_size":{len(raw)}}}}}')
        else:
            outputs.append(f'{head},"data":{float_list(np.frombuffer(raw, "<f4"))}}}')
    names = f'"model_name":{json.dumps(found.model_name)},"model_version":{json.dumps(found.model_version)}'
    identifier = f',"id":{json.dumps(found.id)}' if found.id else ""
    text = f'{{{names}{identifier},"outputs":[{",".join(outputs)}]}}'.encode()
    if not tail:
        return Response(text)
    headers = (("Inference-Header-Content-Length", str(len(text))),)
    return Response(b"".join((text, *tail)), "application/octet-stream", headers=headers)


def _tensors(content: dict[str, Any], part: str) -> list[dict[str, Any]]:
    found = content.get(part)
    if not isinstance(found, list) or any(not isinstance(each, dict) for each in found):
        raise _wrong(f"`{part}` must be a list of tensors")
    return found


def _parameters(content: dict[str, Any]) -> dict[str, Any]:
    found = content.get("parameters", {})
    if not isinstance(found, dict):
        raise _wrong("`parameters` must be an object")
    return found


def _text(content: dict[str, Any], key: str) -> str:
    found = content.get(key, "")
    if not isinstance(found, str) or not _is_text(found):
        raise _wrong(f"`{key}` must be a text")
    return found


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _wrong(message: str) -> HttpError:
    return HttpError("INVALID_ARGUMENT", message)
