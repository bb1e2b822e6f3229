"""A ranker in an ONNX file, run by ONNX Runtime: raw features in, the tensor below its output layer out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

from learning.data.table import Array
from learning.errors import RankerError
from learning.own import graph_rules, graph_trial, torch_export
from learning.schema import Schema

RankerType = Literal["int64", "int32", "float32", "string"]
_TYPES: dict[int, RankerType] = {
    TensorProto.INT64: "int64",
    TensorProto.INT32: "int32",
    TensorProto.FLOAT: "float32",
    TensorProto.STRING: "string",
}
# Types that a ranker's input may have for each type of a feature; int64 is narrowed if the ranker takes int32.
_FITTING: dict[str, tuple[RankerType, ...]] = {
    "int64": ("int64", "int32"),
    "float32": ("float32",),
    "string": ("string",),
}
_ROWS = 8192


@dataclass(frozen=True)
class RankerInput:
    """One input of the ranker: `features` are its columns, several only for an input [n, F] of numbers. rank: 1 for
    [n], 2 for [n, F]."""

    name: str
    type: RankerType
    rank: int
    features: tuple[str, ...]


@dataclass(frozen=True)
class OnnxRanker:
    """model: the checked graph, with a single output. unknown: by feature, what the ranker gets for an id that the rows
    for fitting do not contain; ids of other features are passed on as they are."""

    model: bytes
    source: str
    inputs: tuple[RankerInput, ...]
    unknown: Mapping[str, int | str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: onnx.ModelProto, source: str, schema: Schema, unknown: Mapping[str, int | str] | None = None
    ) -> "OnnxRanker":
        """The ranker of a prepared graph, whose inputs are matched with the schema's features."""
        return cls(model.SerializeToString(), source, _matched(model, schema, source), dict(unknown or {}))

    @property
    def proto(self) -> onnx.ModelProto:
        return onnx.load_model_from_string(self.model)

    @cached_property
    def _session(self) -> ort.InferenceSession:
        return graph_trial.session(self.proto, self.source)

    def feed(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """The ranker's inputs from one column [n] per feature."""
        fed: dict[str, Array] = {}
        for item in self.inputs:
            parts = [columns[name] for name in item.features]
            values = parts[0] if item.rank == 1 else np.stack(parts, 1)
            fed[item.name] = values.astype(object) if item.type == "string" else values.astype(item.type)
        return fed

    def __call__(self, columns: Mapping[str, Array]) -> Array:
        """Features [n, width] of rows whose columns are already in the form that the ranker gets."""
        count = len(next(iter(columns.values())))
        parts = [
            graph_trial.run(
                self._session,
                self.feed({name: values[start : start + _ROWS] for name, values in columns.items()}),
                self.source,
            )
            for start in range(0, max(count, 1), _ROWS)
        ]
        return np.concatenate(parts)

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {
            "model": np.frombuffer(self.model, np.uint8),
            "source": self.source,
            "inputs": [[item.name, item.type, item.rank, list(item.features)] for item in self.inputs],
            "unknown": dict(self.unknown),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "OnnxRanker":
        inputs = tuple(RankerInput(name, kind, rank, tuple(names)) for name, kind, rank, names in state["inputs"])
        return cls(bytes(np.asarray(state["model"], np.uint8)), state["source"], inputs, dict(state["unknown"]))


def read(path: Path, output: str) -> onnx.ModelProto:
    """The checked part of a ranker's file (.onnx, or .pt2 of torch.export) that `output` needs."""
    if path.suffix == ".pt2":
        return graph_rules.prepared(torch_export.graph_of_program(path), output, path.name)
    return graph_rules.prepared(graph_rules.read(path), output, path.name)


def _matched(model: onnx.ModelProto, schema: Schema, source: str) -> tuple[RankerInput, ...]:
    """The ranker's inputs by name; an input [n, F] takes the schema's F numbers in their order."""
    features = {feature.name: feature for feature in schema.features}
    matched = []
    for value in model.graph.input:
        tensor = value.type.tensor_type
        kind = _TYPES.get(tensor.elem_type)
        rank, width = len(tensor.shape.dim), tensor.shape.dim[-1].dim_value if tensor.shape.dim else 0
        if kind is None or rank not in (1, 2):
            name = TensorProto.DataType.Name(tensor.elem_type)
            raise RankerError(
                f"{source}: input '{value.name}' is {name} of rank {rank}, expected int64, int32, float32 or string of "
                "shape [rows], [rows, 1] or, for numbers, [rows, count]"
            )
        names: Sequence[str] = [value.name]
        if rank == 2 and width != 1:
            names = [feature.name for feature in schema.features if not feature.is_coded]
            if kind != "float32" or width not in (0, len(names)):
                raise RankerError(
                    f"{source}: input '{value.name}' takes {width or 'several'} columns of {kind}, but the schema has "
                    f"{len(names)} numbers ({', '.join(names)}), which would be its columns in this order"
                )
        for name in names:
            if name not in features:
                raise RankerError(
                    f"{source}: input '{name}' is not in the schema, which has {', '.join(features)}; add the feature, "
                    "or rename the input"
                )
            if kind not in _FITTING[features[name].type]:
                raise RankerError(
                    f"{source}: input '{name}' is {kind}, but the schema's feature is {features[name].type}"
                )
        matched.append(RankerInput(value.name, kind, rank, tuple(names)))
    used = {name for item in matched for name in item.features}
    idle = [name for name, feature in features.items() if name not in used and feature.kind != "id"]
    if idle:
        raise RankerError(
            f"{source}: has no input for feature '{idle[0]}'; only ids may be missing, which then have effects: remove "
            "the feature from the schema"
        )
    return tuple(matched)
