"""Answers of one shape: all of a PredictResponse but the numbers, made once and filled for every request after.

For a model version, a choice of outputs and a number of rows, every tag and length of the message is known before the
graph ran. That leaves a request with one copy of each array, into its place.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Tensors
from ghostless.contract.encoding import float_payload, header, varint_field
from ghostless.v1 import prediction_pb2 as pb
from serving.engines.interface import ModelVersion

# Literal bytes, or the graph's outputs whose sum goes there.
_Piece = bytes | tuple[str, ...]


def field_numbers(message: Any) -> dict[str, int]:
    """By name, so that the .proto file stays their only source."""
    return {field.name: field.number for field in message.DESCRIPTOR.fields}


RESPONSE = field_numbers(pb.PredictResponse)
_FIELDS: dict[int, str] = {
    pb.OUTPUT_MEAN: "mean",
    pb.OUTPUT_QUANTILES: "quantiles",
    pb.OUTPUT_BINS: "bins",
    pb.OUTPUT_UNCERTAINTY: "uncertainty",
    pb.OUTPUT_CATEGORICAL_UNCERTAINTY: "categorical_uncertainty",
    pb.OUTPUT_DENSITY: "density",
}


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
    """Where the graph's outputs go in the response."""

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
        raise ValueError(f"{output} is no output")

    def _matrix(
        self, message: Any, points_field: str, points: Sequence[float], values_field: str, name: str
    ) -> list[_Piece]:
        numbers = field_numbers(message)
        payload = np.asarray(points, dtype=np.float32)
        return [float_payload(numbers[points_field], payload), *self._floats(numbers[values_field], name)]

    def _split(self, message: Any, parts: dict[str, tuple[str, ...]]) -> list[_Piece]:
        numbers = field_numbers(message)
        pieces: list[_Piece] = []
        for field, names in parts.items():
            if self._there.issuperset(names):
                pieces += self._floats(numbers[field], *names)
        return pieces

    def _floats(self, number: int, *names: str) -> list[_Piece]:
        return [header(number, self._size(names)), names]

    def _size(self, piece: _Piece) -> int:
        return len(piece) if isinstance(piece, bytes) else 4 * self._rows * self._widths.get(piece[0], 1)
