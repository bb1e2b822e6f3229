"""Builds a PredictRequest from columns or rows of candidates."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Required, TypedDict

import numpy as np
import numpy.typing as npt

from ghostless.client.candidate_rows import columns_of
from ghostless.client.scoring import Scoring
from ghostless.contract.errors import InvalidRequestError
from ghostless.contract.wire import packed_floats
from ghostless.v1 import prediction_pb2 as pb

# A feature's values: an array, a list, or, in the context, a single value.
Values = npt.ArrayLike
Columns = Mapping[str, Values]
Rows = Sequence[Mapping[str, int | float | str]]

_OUTPUTS = {name.removeprefix("OUTPUT_").lower(): name for name, number in pb.Output.items() if number}


class PredictArguments(TypedDict, total=False):
    """Keyword arguments of `predict`; only `context` and `candidates` are required."""

    context: Required[Columns]
    """Features of the request, such as the user; one value each, which applies to all candidates."""
    candidates: Required[Columns | Rows]
    """Features of the candidates: columns of n values each, or a list of n dicts with the same keys."""
    model: str
    """Model name; empty means the server's default model."""
    version: int
    """Model version; 0 means the version in service."""
    outputs: Sequence[str]
    """Any of mean, quantiles, bins, uncertainty, categorical_uncertainty, density, emg_density; empty means all
    that the model has, except emg_density."""
    quantile_levels: Sequence[float]
    """Quantile levels in (0, 1); empty means those exported with the model."""
    thresholds: Sequence[float]
    """P(y > t) is returned for each threshold t."""
    scoring: Scoring | None
    """Rule to score and rank candidates; None means by the mean if `top_k` is set, otherwise no ranking."""
    top_k: int
    """Length of the ranking; 0 means all candidates."""
    request_id: str
    """Id of the request, returned unchanged in the response and needed to report outcomes."""


def predict_request(arguments: PredictArguments) -> pb.PredictRequest:
    """The message for these arguments. Raises InvalidRequestError if a value can't be sent."""
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
        what = f"context feature {name!r}"
        _fill(request.context[name], what, np.atleast_1d(_array(what, values)))
    candidates = arguments["candidates"]
    columns = candidates if isinstance(candidates, Mapping) else columns_of(candidates)
    for name, values in columns.items():
        what = f"candidate feature {name!r}"
        _fill(request.candidates[name], what, _array(what, values))
    return request


def _output(name: str) -> str:
    try:
        return _OUTPUTS[name]
    except KeyError:
        raise InvalidRequestError(f"output {name!r} is not one of: {', '.join(_OUTPUTS)}") from None


def _array(what: str, values: Values) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidRequestError(f"{what} has rows of different lengths; expected one value per row") from error
    # In a list with strings, numpy converts numbers to strings; values of unknown types become objects.
    if array.dtype.kind == "O" or (array.dtype.kind == "U" and not isinstance(values, np.ndarray)):
        _check_texts(what, np.atleast_1d(np.asarray(values, object)).tolist())
    return array


def _check_texts(what: str, values: list[Any]) -> None:
    """Raises InvalidRequestError unless all values are strings."""
    seen: dict[str, str] = {}
    for row, value in enumerate(values):
        if not isinstance(value, str | Real):
            raise InvalidRequestError(f"{what} has {value!r} in row {row}; expected integers, floats or strings")
        seen.setdefault("text" if isinstance(value, str) else "number", f"row {row} is {value!r}")
    if len(seen) > 1:
        raise InvalidRequestError(f"{what} mixes numbers and strings: {seen['number']}, {seen['text']}")
    if "number" in seen:
        raise InvalidRequestError(f"{what} does not fit into int64")


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
        raise InvalidRequestError(f"{what} has values that are not strings: {error}") from error
