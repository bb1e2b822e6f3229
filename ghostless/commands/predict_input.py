"""Converts the input of `ghostless predict` (JSON, CSV or Parquet) to typed columns for the client."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ghostless.client import Model
from ghostless.commands.table_files import read_table
from ghostless.contract.errors import InvalidRequestError
from ghostless.contract.metadata import FeatureSpec

Columns = dict[str, npt.NDArray[Any]]

# Floats are cast to float64 first: pyarrow refuses to cast large integers to float32, although the loss is intended.
_ARROW_TYPES = {"int64": pa.int64(), "float32": pa.float64(), "string": pa.string()}


@dataclass(frozen=True)
class PredictInput:
    """One row of context and n candidates, by feature name."""

    context: Columns
    candidates: Columns


def query_from_json(text: str, model: Model) -> PredictInput:
    """Parse {"context": {...}, "candidates": {...}}; `@FILE` reads the JSON from a file."""
    request = _json_object(text, "--request")
    unknown = sorted(set(request) - {"context", "candidates"})
    if unknown:
        raise InvalidRequestError(
            f"--request has {', '.join(unknown)}; expected an object with 'context' and 'candidates'"
        )
    for part, values in request.items():
        if not isinstance(values, dict):
            raise InvalidRequestError(f"--request: '{part}' must be an object of feature: values")
    return PredictInput(_typed(request.get("context", {}), model), _typed(request.get("candidates", {}), model))


def query_from_file(path: Path, context: str, model: Model) -> PredictInput:
    """The rows of a CSV or Parquet file as candidates.

    Context features come from `context` (JSON) or from columns with a single value; other columns are ignored.
    """
    strings = {feature.name: pa.string() for feature in model.features if feature.type == "string"}
    table = read_table(path, strings)
    given = _typed(_json_object(context, "--context"), model) if context else {}
    candidates: Columns = {}
    for feature in model.features:
        if feature.name in given or feature.name not in table.column_names:
            continue
        column = _column(table[feature.name].combine_chunks(), feature)
        if feature.role == "candidate":
            candidates[feature.name] = column
            continue
        distinct = np.unique(column)
        if len(distinct) != 1:
            raise InvalidRequestError(
                f"{path}: context feature '{feature.name}' has {len(distinct)} different values; "
                "a request can have only one: filter the rows or set it with --context"
            )
        given[feature.name] = distinct
    return PredictInput(given, candidates)


def _json_object(text: str, option: str) -> dict[str, Any]:
    source = text
    if text.startswith("@"):
        try:
            source = Path(text[1:]).read_text()
        except OSError as error:
            raise InvalidRequestError(f"{option}: can't read {text[1:]}: {error.strerror}") from error
    try:
        value = json.loads(source)
    except json.JSONDecodeError as error:
        raise InvalidRequestError(f"{option} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{option} must be a JSON object, not {type(value).__name__}")
    return value


def _typed(values: Mapping[str, Any], model: Model) -> Columns:
    specs = {feature.name: feature for feature in model.features}
    unknown = sorted(set(values) - set(specs))
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise InvalidRequestError(f"model '{model.name}' has no feature {names}; it has {describe_features(model)}")
    return {name: _json_column(value, specs[name]) for name, value in values.items()}


def describe_features(model: Model) -> str:
    """The model's features as text: context user_id (int64), ...; candidates video_id (int64), ..."""
    parts = []
    for role, heading in (("context", "context"), ("candidate", "candidates")):
        named = [f"{feature.name} ({feature.type})" for feature in model.features if feature.role == role]
        parts.append(f"{heading} {', '.join(named) or 'none'}")
    return "; ".join(parts)


def _json_column(value: Any, feature: FeatureSpec) -> npt.NDArray[Any]:
    try:
        column = pa.array(value if isinstance(value, list) else [value])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidRequestError(f"feature '{feature.name}' expects {feature.type}: {error}") from error
    return _column(column, feature)


def _column(column: pa.Array, feature: FeatureSpec) -> npt.NDArray[Any]:
    """The column in the feature's type; pyarrow refuses lossy casts, such as 1.5 or "x" to int64."""
    if column.null_count:
        raise InvalidRequestError(f"feature '{feature.name}' has {column.null_count} missing values")
    try:
        array: npt.NDArray[Any] = column.cast(_ARROW_TYPES[feature.type]).to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        raise InvalidRequestError(f"feature '{feature.name}' expects {feature.type}: {error}") from error
    return array
