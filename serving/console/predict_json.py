"""The JSON of POST /v1/predict and /v1/outcomes as messages.

A column is a value, a list of values or the proto's {"int64s": {"values": [...]}}. Plain values get the type of the
model's feature if the caller may read the model, else the type in which they are written: 10 is an int64, 10.0 a float.
"""

import math
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format

from ghostless.v1 import prediction_pb2 as pb
from serving.console.responses import HttpError

_KINDS = ("int64s", "floats", "strings")
_BY_TYPE: Mapping[int, str] = {pb.Feature.INT64: "int64s", pb.Feature.FLOAT: "floats", pb.Feature.STRING: "strings"}
_INT64 = 1 << 63
FeatureTypes = Mapping[str, int]


def predict_request(content: dict[str, Any], types: FeatureTypes) -> pb.PredictRequest:
    """`types`: the model's features by name, as far as they are known."""
    rest = dict(content)
    columns = {part: rest.pop(part, {}) for part in ("context", "candidates")}
    if isinstance(rest.get("outputs"), list):
        rest["outputs"] = [_output(name) for name in rest["outputs"]]
    request: pb.PredictRequest = parse_message(rest, pb.PredictRequest())
    for part, values in columns.items():
        if not isinstance(values, dict):
            raise _wrong(f"`{part}` must be an object of feature: values, it is {_shown(values)}")
        for name, value in values.items():
            _fill(getattr(request, part)[name], name, value, types.get(name, 0))
    return request


def parse_message(content: dict[str, Any], message: Any) -> Any:
    try:
        return json_format.ParseDict(content, message, max_recursion_depth=16)
    except (json_format.ParseError, TypeError, ValueError, RecursionError) as error:
        raise _wrong(f"the body is not a {message.DESCRIPTOR.full_name}: {error}") from error


def needs_types(content: dict[str, Any]) -> bool:
    """Whether a column is plain numbers, whose type the model decides."""
    parts = (content.get(part) for part in ("context", "candidates"))
    return any(not isinstance(value, dict) for part in parts if isinstance(part, dict) for value in part.values())


def _output(name: Any) -> Any:
    """The proto's name of an output, which may be given as OUTPUT_MEAN or mean."""
    if isinstance(name, str) and not name.startswith("OUTPUT_"):
        return f"OUTPUT_{name.upper()}"
    return name


def _fill(column: pb.Column, name: str, value: Any, kind: int) -> None:
    if isinstance(value, dict):
        parse_message(value, column)
        return
    values = value if isinstance(value, list) else [value]
    wrong = next((each for each in values if isinstance(each, bool) or not isinstance(each, int | float | str)), None)
    if wrong is not None or None in values:
        raise _wrong(f"feature {name!r} must be numbers or texts, it has {_shown(wrong)}")
    field = _BY_TYPE.get(kind) or _guess(values)
    if field == "int64s":
        column.int64s.values.extend([_integer(name, each) for each in values])
    elif field == "floats":
        column.floats.values.extend([_real(name, each) for each in values])
    else:
        texts = [each for each in values if not isinstance(each, str)]
        if texts:
            raise _wrong(f"feature {name!r} must be texts, it has {_shown(texts[0])}")
        column.strings.values.extend(values)


def _guess(values: list[Any]) -> str:
    if any(isinstance(each, str) for each in values):
        return "strings"
    return "floats" if any(isinstance(each, float) for each in values) else "int64s"


def _integer(name: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -_INT64 <= value < _INT64:
        raise _wrong(f"feature {name!r} must be int64, it has {_shown(value)}")
    return value


def _real(name: str, value: Any) -> float:
    if isinstance(value, str):
        raise _wrong(f"feature {name!r} must be numbers, it has {_shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf  # the server rejects it and names the row


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."


def _wrong(message: str) -> HttpError:
    return HttpError("INVALID_ARGUMENT", message)
