"""Everything that requests to one model version have in common, computed once instead of per request: which outputs of
the graph each response needs, and all of a PredictResponse except its numbers.

For a given model version, outputs and number of rows, every tag and length of the message is known before the graph
runs. A request then only copies each array into its place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ghostless.contract import metadata
from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.distribution import LEAST_MASS, Knots
from ghostless.contract.encoding import float_payload, header, varint_field
from ghostless.contract.metadata import FeatureSpec
from ghostless.v1 import prediction_pb2 as pb
from serving.engines.interface import ModelVersion

# The outputs of the graph that each output of the API needs.
GRAPH_OUTPUTS: dict[int, tuple[str, ...]] = {
    pb.OUTPUT_MEAN: (metadata.MEAN,),
    pb.OUTPUT_QUANTILES: (metadata.QUANTILES,),
    pb.OUTPUT_BINS: (metadata.BINS,),
    pb.OUTPUT_UNCERTAINTY: (metadata.ALEATORIC, metadata.EPISTEMIC),
    pb.OUTPUT_CATEGORICAL_UNCERTAINTY: (
        metadata.CATEGORICAL_ALEATORIC,
        metadata.CATEGORICAL_EPISTEMIC,
        metadata.CATEGORICAL_EPISTEMIC_DELTA,
    ),
    pb.OUTPUT_DENSITY: (metadata.DENSITY,),
    pb.OUTPUT_EMG_DENSITY: (metadata.EMG_DENSITY,),
}
# Returned only if a request names them: they describe another distribution than the other outputs.
_ON_REQUEST = frozenset({pb.OUTPUT_EMG_DENSITY})

# Maximum number of cached templates per model; others are built each time.
_MAX_TEMPLATES = 1024

PlanT = TypeVar("PlanT")
BoolArray = npt.NDArray[np.bool_]


# Literal bytes, or the names of graph outputs whose sum is written.
_Piece = bytes | tuple[str, ...]


def field_numbers(message: Any) -> dict[str, int]:
    """Field numbers by name, so that they are defined only in the .proto file."""
    return {field.name: field.number for field in message.DESCRIPTOR.fields}


RESPONSE = field_numbers(pb.PredictResponse)
_FIELDS: dict[int, str] = {
    pb.OUTPUT_MEAN: "mean",
    pb.OUTPUT_QUANTILES: "quantiles",
    pb.OUTPUT_BINS: "bins",
    pb.OUTPUT_UNCERTAINTY: "uncertainty",
    pb.OUTPUT_CATEGORICAL_UNCERTAINTY: "categorical_uncertainty",
    pb.OUTPUT_DENSITY: "density",
    pb.OUTPUT_EMG_DENSITY: "emg_density",
}


@dataclass(frozen=True, eq=False)
class ModelPlan:
    context: tuple[FeatureSpec, ...]
    candidates: tuple[FeatureSpec, ...]
    # Outputs of the API that the graph can provide, and that are returned if a request names none.
    offered: frozenset[int]
    # Further outputs that are returned only if a request names them.
    on_request: frozenset[int]
    # The graph's outputs for a request for all offered outputs without further options.
    wanted: tuple[str, ...]
    levels: Array
    knots: Knots
    # Whether the CDF is calibrated, so that quantiles read from it match those of the graph.
    cdf_is_calibrated: bool
    # Argument of distribution.quantiles, to invert the CDF as the graph does.
    least_mass: float
    # The graph's output with the candidates' own epistemic variance.
    candidate_variance: str
    # Columns that identify the item of a candidate.
    item_columns: tuple[str, ...]
    # Graph outputs for requests that only name outputs of the API, by those outputs.
    wanted_by_outputs: dict[frozenset[int], tuple[str, ...]] = field(default_factory=dict)
    # Templates by outputs of the API and number of rows.
    templates: dict[tuple[frozenset[int], int], "AnswerTemplate"] = field(default_factory=dict)

    def template(self, model: ModelVersion, outputs: frozenset[int], rows: int) -> "AnswerTemplate":
        template = self.templates.get((outputs, rows))
        if template is None:
            if len(self.templates) >= _MAX_TEMPLATES:
                self.templates.clear()
            template = self.templates[outputs, rows] = AnswerTemplate(model, outputs, rows)
        return template


def _once_per_model(make: Callable[[ModelVersion], PlanT]) -> Callable[[ModelVersion], PlanT]:
    """Cache the result per model version, without keeping a version that is no longer in service in memory."""
    made: WeakKeyDictionary[ModelVersion, PlanT] = WeakKeyDictionary()

    @wraps(make)
    def get(model: ModelVersion) -> PlanT:
        result = made.get(model)
        if result is None:
            result = made[model] = make(model)
        return result

    return get


@_once_per_model
def plan_of(model: ModelVersion) -> ModelPlan:
    there = set(model.outputs)
    possible = frozenset(output for output, parts in GRAPH_OUTPUTS.items() if there.issuperset(parts))
    offered = possible - _ON_REQUEST
    features = model.metadata.features
    candidates = tuple(feature for feature in features if feature.role == "candidate")
    calibrated = model.metadata.format >= metadata.CALIBRATED_CDF
    return ModelPlan(
        context=tuple(feature for feature in features if feature.role == "context"),
        candidates=candidates,
        offered=offered,
        on_request=possible & _ON_REQUEST,
        wanted=graph_outputs(model, offered),
        levels=np.asarray(model.metadata.levels, dtype=np.float32),
        knots=np.asarray(model.metadata.knots, dtype=np.float32),
        cdf_is_calibrated=calibrated,
        least_mass=LEAST_MASS if calibrated else 0.0,
        candidate_variance=metadata.candidate_variance(model.outputs),
        # Without id columns, all candidate columns together identify an item.
        item_columns=model.metadata.id_columns("candidate") or tuple(feature.name for feature in candidates),
    )


def graph_outputs(model: ModelVersion, outputs: frozenset[int]) -> tuple[str, ...]:
    """The graph's outputs that are needed for these outputs of the API, in the graph's order."""
    names = {name for output in outputs for name in GRAPH_OUTPUTS[output]}
    if pb.OUTPUT_UNCERTAINTY in outputs:
        names |= {metadata.LOGIT_VARIANCE, metadata.EPISTEMIC_CANDIDATE, metadata.EPISTEMIC_LAST_LAYER}
    if pb.OUTPUT_BINS in outputs:
        names.add(metadata.ATOMS)
    return tuple(name for name in model.outputs if name in names)


def exported(plan: ModelPlan, model: ModelVersion, levels: Array) -> BoolArray:
    """Flags [levels] of the levels that the graph itself returns."""
    return np.isin(levels, plan.levels) & (metadata.QUANTILES in model.outputs)


class AnswerTemplate:
    __slots__ = ("_slots", "_tail")

    def __init__(self, model: ModelVersion, outputs: frozenset[int], rows: int) -> None:
        pieces: list[_Piece] = [
            header(RESPONSE["model"], len(model.name.encode())),
            model.name.encode(),
            varint_field(RESPONSE["version"], model.version),
            varint_field(RESPONSE["rows"], rows),
        ]
        layout = _AnswerLayout(model, rows)
        for output in sorted(outputs):
            pieces += layout.field(output)
        self._slots: list[tuple[bytes, str, str]] = []
        literal = b""
        for piece in pieces:
            if isinstance(piece, bytes):
                literal += piece
            else:
                self._slots.append((literal, piece[0], piece[1] if len(piece) > 1 else ""))
                literal = b""
        self._tail = literal

    def fill(self, outputs: Tensors) -> list[bytes | memoryview]:
        """The message's bytes, in pieces."""
        parts: list[bytes | memoryview] = []
        for literal, name, addend in self._slots:
            values = outputs[name]
            if addend:
                values = values + outputs[addend]
            parts.append(literal)
            parts.append(values.data)
        parts.append(self._tail)
        return parts


class _AnswerLayout:
    """Positions of the graph's outputs in the response."""

    def __init__(self, model: ModelVersion, rows: int) -> None:
        self._described = model.metadata
        self._there = frozenset(model.outputs)
        self._widths = model.metadata.widths()
        self._rows = rows

    def field(self, output: int) -> list[_Piece]:
        number = RESPONSE[_FIELDS[output]]
        if output == pb.OUTPUT_MEAN:
            return self._floats(number, metadata.MEAN)
        pieces = self._submessage(number, self._message(output))
        if output == pb.OUTPUT_BINS and metadata.ATOMS in self._there:
            atoms = self._matrix(pb.Atoms, "values", self._described.atoms, "probabilities", metadata.ATOMS)
            pieces += self._submessage(RESPONSE["atoms"], atoms)
        return pieces

    def _submessage(self, number: int, inner: list[_Piece]) -> list[_Piece]:
        return [header(number, sum(self._size(piece) for piece in inner)), *inner]

    def _message(self, output: int) -> list[_Piece]:
        match output:
            case pb.OUTPUT_QUANTILES:
                return self._matrix(pb.Quantiles, "levels", self._described.levels, "values", metadata.QUANTILES)
            case pb.OUTPUT_BINS:
                return self._matrix(pb.Bins, "edges", self._described.edges, "probabilities", metadata.BINS)
            case pb.OUTPUT_DENSITY:
                return self._matrix(pb.Density, "grid", self._described.grid, "values", metadata.DENSITY)
            case pb.OUTPUT_EMG_DENSITY:
                return self._matrix(pb.Density, "grid", self._described.grid, "values", metadata.EMG_DENSITY)
            case pb.OUTPUT_UNCERTAINTY:
                split = {
                    "aleatoric": (metadata.ALEATORIC,),
                    "epistemic": (metadata.EPISTEMIC,),
                    "total": (metadata.ALEATORIC, metadata.EPISTEMIC),
                    "logit_variance": (metadata.LOGIT_VARIANCE,),
                    "epistemic_last_layer": (metadata.EPISTEMIC_LAST_LAYER,),
                    "epistemic_candidate": (metadata.candidate_variance(self._there),),
                }
                return self._split(pb.Uncertainty, split)
            case pb.OUTPUT_CATEGORICAL_UNCERTAINTY:
                split = {
                    "aleatoric": (metadata.CATEGORICAL_ALEATORIC,),
                    "epistemic": (metadata.CATEGORICAL_EPISTEMIC,),
                    "total": (metadata.CATEGORICAL_ALEATORIC, metadata.CATEGORICAL_EPISTEMIC),
                    "epistemic_delta": (metadata.CATEGORICAL_EPISTEMIC_DELTA,),
                }
                return self._split(pb.CategoricalUncertainty, split)
        raise ValueError(f"{output} is not an output")

    def _matrix(
        self, message: Any, points_field: str, points: Sequence[float], values_field: str, name: str
    ) -> list[_Piece]:
        numbers = field_numbers(message)
        payload = np.asarray(points, dtype=np.float32)
        return [float_payload(numbers[points_field], payload), *self._floats(numbers[values_field], name)]

    def _split(self, message: Any, parts: dict[str, tuple[str, ...]]) -> list[_Piece]:
        numbers = field_numbers(message)
        pieces: list[_Piece] = []
        for part, names in parts.items():
            if self._there.issuperset(names):
                pieces += self._floats(numbers[part], *names)
        return pieces

    def _floats(self, number: int, *names: str) -> list[_Piece]:
        return [header(number, self._size(names)), names]

    def _size(self, piece: _Piece) -> int:
        return len(piece) if isinstance(piece, bytes) else 4 * self._rows * self._widths.get(piece[0], 1)
