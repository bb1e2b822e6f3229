"""Checks a model file against its metadata: before export publishes it, and before a server serves it.

`session` is an onnxruntime.InferenceSession; this module does not import ONNX Runtime.
"""

from typing import Any

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Tensors
from ghostless.contract.errors import InvalidModelError
from ghostless.contract.metadata import FeatureType, ModelMetadata

_DTYPES: dict[FeatureType, Any] = {"int64": np.int64, "float32": np.float32, "string": np.object_}
_ONNX_TYPES: dict[FeatureType, str] = {
    "int64": "tensor(int64)",
    "float32": "tensor(float)",
    "string": "tensor(string)",
}
_BLANKS: dict[FeatureType, Any] = {"int64": 0, "float32": 0.0, "string": ""}


def read_metadata(session: Any, source: str) -> ModelMetadata:
    """The file's metadata, after checking that the graph's inputs and outputs match it."""
    described = ModelMetadata.parse(session.get_modelmeta().custom_metadata_map, source)
    _check_inputs(session, described, source)
    _check_outputs(session, described, source)
    return described


def trial_run(session: Any, described: ModelMetadata, rows: int, source: str) -> None:
    """Run `rows` blank rows and check that every output has the declared shape and is finite."""
    blank = {
        feature.name: np.full(rows, _BLANKS[feature.type], dtype=_DTYPES[feature.type])
        for feature in described.features
    }
    names = [output.name for output in session.get_outputs()]
    try:
        outputs = dict(zip(names, session.run(names, blank), strict=True))
    except Exception as error:  # ONNX Runtime has a separate exception class for each status code
        raise InvalidModelError(f"{source}: a trial run with {rows} rows failed: {error}") from error
    widths = described.widths()
    for name, values in outputs.items():
        expected = (rows, widths[name]) if name in widths else (rows,)
        if values.shape != expected:
            raise InvalidModelError(f"{source}: output {name!r} has shape {values.shape}, expected {expected}")
        if not np.isfinite(values).all():
            raise InvalidModelError(f"{source}: output {name!r} is not finite for {rows} blank rows")


def random_rows(described: ModelMetadata, rows: int) -> Tensors:
    """Rows to compare two sessions on: known ids and numbers within the range of training."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for feature in described.features:
        if feature.type == "float32":
            low, high = described.ranges.get(feature.name, (0.0, 1.0))
            columns[feature.name] = rng.uniform(low, high, rows).astype(np.float32)
        else:
            ids = rng.integers(0, max(feature.vocabulary, 1), rows)
            columns[feature.name] = ids if feature.type == "int64" else ids.astype(str).astype(np.object_)
    return columns


def _check_inputs(session: Any, described: ModelMetadata, source: str) -> None:
    graph = {node.name: (node.type, len(node.shape)) for node in session.get_inputs()}
    promised = {feature.name: (_ONNX_TYPES[feature.type], 1) for feature in described.features}
    if graph != promised:
        raise InvalidModelError(f"{source}: the graph's inputs are {graph}, but its metadata declares {promised}")
    if not any(feature.role == "candidate" for feature in described.features):
        raise InvalidModelError(f"{source}: no feature has the role candidate, so there is nothing to rank")


def _check_outputs(session: Any, described: ModelMetadata, source: str) -> None:
    known = {*described.widths(), *metadata.SCALAR_OUTPUTS}
    for node in session.get_outputs():
        if node.name not in known:
            raise InvalidModelError(f"{source}: unknown output {node.name!r}, expected some of {sorted(known)}")
        if node.type != "tensor(float)":
            raise InvalidModelError(f"{source}: output {node.name!r} is {node.type}, expected tensor(float)")
