"""One model file in ONNX Runtime: loaded, checked against what its metadata promises, warmed up, run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from ghostless.contract import metadata
from serving.engines.interface import Array, ModelVersion, Tensors
from serving.errors import InvalidModelError
from ghostless.contract.metadata import FeatureType, ModelMetadata

_DTYPES: dict[FeatureType, Any] = {"int64": np.int64, "float32": np.float32, "string": np.object_}
_ONNX_TYPES: dict[FeatureType, str] = {
    "int64": "tensor(int64)",
    "float32": "tensor(float)",
    "string": "tensor(string)",
}
_BLANKS: dict[FeatureType, Any] = {"int64": 0, "float32": 0.0, "string": ""}


@dataclass(frozen=True, eq=False)
class LoadedModel(ModelVersion):
    """A version with its session. Runs may overlap: ONNX Runtime's sessions are thread-safe."""

    session: ort.InferenceSession
    # What reading and checking the file took, and the first runs.
    load_s: float = 0.0
    warm_up_s: float = 0.0

    def run(self, inputs: Tensors, outputs: Sequence[str]) -> dict[str, Array]:
        return dict(zip(outputs, self.session.run(outputs, inputs), strict=True))


def load_model(file: Path, name: str, version: int, warm_up_rows: Sequence[int]) -> LoadedModel:
    """Ready to serve: every check passed and every batch size of `warm_up_rows` run once."""
    began = time.monotonic()
    try:
        session = ort.InferenceSession(str(file), session_options(), providers=["CPUExecutionProvider"])
    except Exception as broken:  # ONNX Runtime raises a class of its own for each status code
        raise InvalidModelError(f"{file}: ONNX Runtime can't load it: {broken}") from broken
    properties = session.get_modelmeta().custom_metadata_map
    described = ModelMetadata.parse(properties, str(file))
    _check_inputs(session, described, str(file))
    _check_outputs(session, described, str(file))
    model = LoadedModel(
        name=name,
        version=version,
        metadata=described,
        outputs=tuple(output.name for output in session.get_outputs()),
        properties={key: text for key, text in properties.items() if key.startswith(metadata.PREFIX)},
        session=session,
    )
    loaded = time.monotonic()
    for rows in warm_up_rows:
        _warm_up(model, rows, str(file))
    return replace(model, load_s=loaded - began, warm_up_s=time.monotonic() - loaded)


def warm_up_sizes(max_batch_rows: int) -> tuple[int, ...]:
    """1, 4, 16, ... and the largest batch."""
    sizes = [1]
    while sizes[-1] * 4 < max_batch_rows:
        sizes.append(sizes[-1] * 4)
    return (*sizes, max_batch_rows) if max_batch_rows > 1 else (1,)


def session_options() -> ort.SessionOptions:
    """One thread a run, no spinning."""
    options = ort.SessionOptions()
    # The slots are the parallelism; threads of a session's own would fight them for the same cores.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return options


def _check_inputs(session: ort.InferenceSession, described: ModelMetadata, source: str) -> None:
    graph = {node.name: (node.type, len(node.shape)) for node in session.get_inputs()}
    promised = {feature.name: (_ONNX_TYPES[feature.type], 1) for feature in described.features}
    if graph != promised:
        raise InvalidModelError(f"{source}: the graph's inputs are {graph}, its metadata promises {promised}")
    if not any(feature.role == "candidate" for feature in described.features):
        raise InvalidModelError(f"{source}: no feature has the role candidate, so there is nothing to rank")


def _check_outputs(session: ort.InferenceSession, described: ModelMetadata, source: str) -> None:
    known = {*described.widths(), *metadata.SCALAR_OUTPUTS}
    for node in session.get_outputs():
        if node.name not in known:
            raise InvalidModelError(f"{source}: unknown output {node.name!r}, expected some of {sorted(known)}")
        if node.type != "tensor(float)":
            raise InvalidModelError(f"{source}: output {node.name!r} is {node.type}, expected tensor(float)")


def _warm_up(model: LoadedModel, rows: int, source: str) -> None:
    blank = {
        feature.name: np.full(rows, _BLANKS[feature.type], dtype=_DTYPES[feature.type])
        for feature in model.metadata.features
    }
    try:
        outputs = model.run(blank, model.outputs)
    except Exception as broken:
        raise InvalidModelError(f"{source}: warm-up with {rows} rows failed: {broken}") from broken
    widths = model.metadata.widths()
    for name, values in outputs.items():
        expected = (rows, widths[name]) if name in widths else (rows,)
        if values.shape != expected:
            raise InvalidModelError(f"{source}: output {name!r} has shape {values.shape}, expected {expected}")
        if not np.isfinite(values).all():
            raise InvalidModelError(f"{source}: output {name!r} is not finite for {rows} blank rows")
