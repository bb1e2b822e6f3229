"""Converts Arrow columns to checked numpy arrays. All bad values are detected here."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learning.data.table import LONGEST_STRING, Array
from learning.errors import DataError
from learning.schema import Target, Type


def require(wanted: Iterable[str], available: Sequence[str], source: Path) -> None:
    for name in wanted:
        if name not in available:
            raise DataError(f"{source}: no column '{name}'; it has {', '.join(available) or 'no columns'}")
        if available.count(name) > 1:
            raise DataError(f"{source}: column '{name}' appears twice; rename or drop one")


def check_type(found: pa.DataType, name: str, type: Type, source: Path) -> None:
    """Raises DataError unless a stored column can be read as `type` without guessing."""
    plain = found.value_type if pa.types.is_dictionary(found) else found
    fits = {
        "int64": pa.types.is_integer(plain),
        "float32": pa.types.is_integer(plain) or pa.types.is_floating(plain),
        "string": pa.types.is_string(plain) or pa.types.is_large_string(plain),
    }
    if not fits[type]:
        raise DataError(
            f"{source}: column '{name}' is {found}, expected {type}; convert it or change its type in the schema"
        )


def values(column: pa.ChunkedArray | pa.Array, name: str, type: Type, source: Path, first_row: int = 0) -> Array:
    """The column as int64, float32 or str [n]; every value must be present and finite.

    first_row: number of rows of the file before this part, so that an error can name the row.
    """
    if type == "float32":
        return numbers(column, name, source, first_row).astype(np.float32)
    check_type(column.type, name, type, source)
    _refuse_missing(column, name, source, first_row)
    if type == "string":
        return _strings(column, name, source, first_row)
    try:
        return _array(column.cast(pa.int64()))
    except pa.ArrowInvalid as error:
        raise DataError(f"{source}: column '{name}' does not fit int64: {error}") from error


def numbers(
    column: pa.ChunkedArray | pa.Array, name: str, source: Path, first_row: int = 0, missing_ok: bool = False
) -> Array:
    """The column as float64 [n], finite; with `missing_ok` a missing value is NaN."""
    check_type(column.type, name, "float32", source)
    if not missing_ok:
        _refuse_missing(column, name, source, first_row)
    read = _array(column.cast(pa.float64(), safe=False))
    bad = np.isinf(read) if missing_ok else ~np.isfinite(read)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{source}: column '{name}', row {first_row + row + 1}: {read[row]} is not a finite number; "
            f"{int(bad.sum())} such rows here; drop or fix them"
        )
    return read


def clip(raw: Array, target: Target) -> Array:
    """Targets as float32, clipped to the schema's range."""
    return np.clip(raw, target.low, target.high).astype(np.float32)


def clipped_share(raw: Array, target: Target) -> float:
    """The share of targets that `clip` changes by more than rounding to float32."""
    rounded = raw.astype(np.float32)
    outside = (rounded < np.float32(target.low)) | (rounded > np.float32(target.high))
    return float(outside.mean()) if len(raw) else 0.0


def _strings(column: pa.ChunkedArray | pa.Array, name: str, source: Path, first_row: int) -> Array:
    texts = column.cast(pa.large_string())
    lengths = _array(pc.utf8_length(texts))
    if lengths.max(initial=0) > LONGEST_STRING:
        row = int(lengths.argmax())
        raise DataError(
            f"{source}: column '{name}', row {first_row + row + 1}: a string of {lengths[row]} characters; "
            f"ids may have up to {LONGEST_STRING}"
        )
    return _array(texts).astype(np.str_)


def _refuse_missing(column: pa.ChunkedArray | pa.Array, name: str, source: Path, first_row: int) -> None:
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise DataError(
            f"{source}: column '{name}', row {first_row + row + 1}: value is missing (empty or NaN); "
            f"{column.null_count} such rows here; fill or drop them"
        )


def _array(column: pa.ChunkedArray | pa.Array) -> Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    array: Array = column.to_numpy(zero_copy_only=False)
    return array
