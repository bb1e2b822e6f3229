"""The state of one Triton: its models, their ready versions, and values from their configs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonclient.grpc import service_pb2 as oip

from ghostless.contract import triton_parameters


@dataclass(frozen=True)
class RemoteModel:
    """One model on one Triton."""

    name: str
    ready: frozenset[int]
    loading: frozenset[int] = frozenset()
    failed: Mapping[int, str] = field(default_factory=dict)
    # From the config, which is only available while a version is ready.
    max_rows: int = 0
    outputs: tuple[str, ...] = ()
    in_service: int = 0
    properties: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


def read_state(stub: Any, timeout_s: float) -> dict[str, RemoteModel] | None:
    """All models that Triton was told to load; None while it is not ready. Raises grpc.RpcError if it can't be
    reached."""
    if not stub.ServerReady(oip.ServerReadyRequest(), timeout=timeout_s).ready:
        return None
    index = stub.RepositoryIndex(oip.RepositoryIndexRequest(), timeout=timeout_s)
    versions: dict[str, list[Any]] = {}
    for entry in index.models:
        # A model that was never loaded has neither version nor state.
        if entry.version.isdecimal():
            versions.setdefault(entry.name, []).append(entry)
    return {name: _model(stub, name, entries, timeout_s) for name, entries in versions.items()}


def _model(stub: Any, name: str, entries: list[Any], timeout_s: float) -> RemoteModel:
    by_state: dict[str, dict[int, str]] = {}
    for entry in entries:
        by_state.setdefault(entry.state, {})[int(entry.version)] = entry.reason
    ready = frozenset(by_state.get("READY", ()))
    loading = frozenset(by_state.get("LOADING", ()))
    failed = {v: reason for v, reason in by_state.get("UNAVAILABLE", {}).items() if reason and reason != "unloaded"}
    if not ready:
        return RemoteModel(name, ready, loading, failed)
    config = stub.ModelConfig(oip.ModelConfigRequest(name=name), timeout=timeout_s).config
    return RemoteModel(
        name,
        ready,
        loading,
        failed,
        max_rows=config.max_batch_size,
        outputs=tuple(output.name for output in config.output),
        in_service=triton_parameters.in_service(config.parameters),
        properties=triton_parameters.properties_by_version(config.parameters),
    )
