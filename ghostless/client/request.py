"""From numpy columns to a PredictRequest."""

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict

import numpy as np
import numpy.typing as npt

from ghostless.client.scoring import Scoring
from ghostless.contract.errors import InvalidRequestError
from ghostless.contract.wire import packed_floats
from ghostless.v1 import prediction_pb2 as pb

# A feature's values: an array, a list, or for the context one plain value.
Values = npt.ArrayLike

_OUTPUTS = {name.removeprefix("OUTPUT_").lower(): name for name, number in pb.Output.items() if number}


class PredictArguments(TypedDict, total=False):
    """What `predict` takes, by keyword; only `context` and `candidates` must be given."""

    context: Required[Mapping[str, Values]]
    """Features of the user and the moment, one value each, broadcast to all candidates."""
    candidates: Required[Mapping[str, Values]]
    """Features of the candidates, n values each."""
    model: str
    """Empty: the server's default model."""
    version: int
    """0: the version in service."""
    outputs: Sequence[str]
    """Of mean, quantiles, bins, uncertainty, categorical_uncertainty, density; empty: all the model has."""
    quantile_levels: Sequence[float]
    """Levels in (0, 1); empty: those exported with the model."""
    thresholds: Sequence[float]
    """P(y > t) is returned for each."""
    scoring: Scoring | None
    """How candidates are ranked; None: the server's default, the mean."""
    top_k: int
    """Length of the ranking; 0: all candidates."""
    request_id: str
    """Returned unchanged."""


def predict_request(arguments: PredictArguments) -> pb.PredictRequest:
    """The request of these arguments; raises InvalidRequestError for what can't be written on the wire."""
    scoring = arguments.get("scoring")
    try:
        request = pb.PredictRequest(
            model=arguments.get("model", ""),
            version=arguments.get("version", 0),
            outputs=[_output(name) for name in arguments.get("outputs", ())],
            quantile_levels=arguments.get("quantile_levels", ()),
            thresholds=arguments.get("thresholds", ()),
            scoring=None if scoring is None else scoring.message(),
            top_k=arguments.get("top_k", 0),
            request_id=arguments.get("request_id", ""),
        )
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"an argument of predict does not fit its field: {error}") from error
    for name, values in arguments["context"].items():
        _fill(request.context[name], f"context feature {name!r}", np.atleast_1d(np.asarray(values)))
    for name, values in arguments["candidates"].items():
        _fill(request.candidates[name], f"candidate feature {name!r}", np.asarray(values))
    return request


def _output(name: str) -> str:
    try:
        return _OUTPUTS[name]
    except KeyError:
        raise InvalidRequestError(f"output {name!r} is not one of: {', '.join(_OUTPUTS)}") from None


def _fill(column: pb.Column, what: str, values: npt.NDArray[Any]) -> None:
    if values.ndim != 1:
        raise InvalidRequestError(f"{what} has shape {list(values.shape)}; expected one value per row, shape [n]")
    kind = values.dtype.kind
    if kind in "iub":
        _fill_integers(column, what, values)
    elif kind == "f":
        column.floats.MergeFromString(packed_floats(pb.FloatList.VALUES_FIELD_NUMBER, values.astype(np.float32)))
    elif kind in "UOS":
        _fill_strings(column, what, values)
    else:
        raise InvalidRequestError(f"{what} is {values.dtype}; expected integers, floats or strings")


def _fill_integers(column: pb.Column, what: str, values: npt.NDArray[Any]) -> None:
    try:
        column.int64s.values.extend(values.tolist())
    except ValueError as error:
        raise InvalidRequestError(f"{what} does not fit into int64: {error}") from error


def _fill_strings(column: pb.Column, what: str, values: npt.NDArray[Any]) -> None:
    try:
        column.strings.values.extend(values.tolist())
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{what} holds values that are not text: {error}") from error
