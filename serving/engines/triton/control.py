"""Puts a version in service on running Tritons, one after the other, through their explicit load API.

Each Triton loads the version in addition to the one that it replaces, and its config records which one is in service.
Facades switch once all have recorded it (serving/engines/triton/catalogue.py). Triton keeps serving while it loads.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2, service_pb2_grpc
from tritonclient.grpc import service_pb2 as oip

from ghostless.contract import triton_parameters
from ghostless.contract.errors import ConfigError, RepositoryError
from ghostless.contract.repository import ModelEntry
from serving.engines.triton.channels import TritonTls, open_channel
from serving.engines.triton.endpoints import resolve, split_address

_log = logging.getLogger(__name__)

# Config files by the backend that runs the model; see export/triton_config.py.
_CONFIGS = {"onnxruntime": Path("config.pbtxt"), "python": Path("configs/python.pbtxt")}
_ASK_TIMEOUT_S = 5.0
# Long, because a TensorRT engine may have to be compiled.
_LOAD_TIMEOUT_S = 900.0


def put_in_service(
    addresses: Sequence[str],
    entry: ModelEntry,
    version: int,
    on_done: Callable[[str], None] = lambda _: None,
    tls: TritonTls | None = None,
) -> None:
    """Put `version` in service on every Triton. If one can't load it, revert the others and raise RepositoryError."""
    if version not in entry.versions:
        known = ", ".join(map(str, entry.versions))
        raise RepositoryError(f"model {entry.name!r} has no version {version}; available: {known}")
    targets = [target for address in addresses for target in _resolved(address)]
    present = entry.in_service
    done: list[str] = []
    for address in targets:
        try:
            _load(address, entry, version, present, tls)
        except grpc.RpcError as error:
            _go_back(done, entry, present, version, tls)
            raise RepositoryError(
                f"Triton {address} can't load version {version} of {entry.name!r}: {error.details()}; "
                f"version {present} stays in service"
            ) from error
        done.append(address)
        on_done(address)


def _resolved(address: str) -> list[str]:
    """Addresses of all Tritons of a host name, resolved as in the facade."""
    host, port = split_address(address)
    try:
        return resolve(host, port)
    except OSError as error:
        raise ConfigError(f"cannot resolve the Triton host {host}: {error}") from error


def _go_back(addresses: Sequence[str], entry: ModelEntry, present: int, refused: int, tls: TritonTls | None) -> None:
    for address in addresses:
        try:
            _load(address, entry, present, refused, tls)
        except grpc.RpcError as error:
            _log.error("Triton %s cannot roll back to version %d: %s", address, present, error.details())


def _load(address: str, entry: ModelEntry, version: int, besides: int, tls: TritonTls | None) -> None:
    with open_channel(address, tls) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        config = _read_config(entry, _backend(stub, entry.name))
        config.version_policy.specific.versions[:] = sorted({version, besides} & set(entry.versions))
        config.parameters[triton_parameters.IN_SERVICE].string_value = str(version)
        request = oip.RepositoryModelLoadRequest(model_name=entry.name)
        request.parameters["config"].string_param = json_format.MessageToJson(config, preserving_proto_field_name=True)
        stub.RepositoryModelLoad(request, timeout=_LOAD_TIMEOUT_S)


def _backend(stub: Any, name: str) -> str:
    """The backend that runs the model on this Triton; a model that is not loaded yet is first loaded from its disk."""
    ask = oip.ModelConfigRequest(name=name)
    try:
        return str(stub.ModelConfig(ask, timeout=_ASK_TIMEOUT_S).config.backend)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE and "connect" in (error.details() or ""):
            raise
    stub.RepositoryModelLoad(oip.RepositoryModelLoadRequest(model_name=name), timeout=_LOAD_TIMEOUT_S)
    return str(stub.ModelConfig(ask, timeout=_ASK_TIMEOUT_S).config.backend)


def _read_config(entry: ModelEntry, backend: str) -> Any:
    if backend not in _CONFIGS:
        raise RepositoryError(f"Triton runs {entry.name!r} with the backend {backend!r}, expected {list(_CONFIGS)}")
    file = entry.path / _CONFIGS[backend]
    try:
        return text_format.Parse(file.read_text(), model_config_pb2.ModelConfig())
    except (OSError, text_format.ParseError) as error:
        raise RepositoryError(f"{file} can't be read: {error}; write it with `ghostless export`") from error
