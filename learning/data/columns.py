"""From Arrow columns to checked numpy arrays: the one place where a bad value is found and named."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learning.data.table import LONGEST_STRING, Array
from learning.errors import DataError
from learning.schema import Target, Type


def require(wanted: Iterable[str], available: Sequence[str], source: Path) -> None:
    missing = [name for name in wanted if name not in available]
    if missing:
        raise DataError(f"{source}: no column '{missing[0]}'; it has {', '.join(available) or 'no columns'}")


def check_type(found: pa.DataType, name: str, type: Type, source: Path) -> None:
    """Whether a stored column can be read as `type` without guessing."""
    plain = found.value_type if pa.types.is_dictionary(found) else found
    fits = {
        "int64": pa.types.is_integer(plain),
        "float32": pa.types.is_integer(plain) or pa.types.is_floating(plain),
        "string": pa.types.is_string(plain) or pa.types.is_large_string(plain),
    }
    if not fits[type]:
        raise DataError(
            f"{source}: column '{name}' is {found}, expected {type}; "
            "convert it or change its type in the schema"
        )


def values(
    column: pa.ChunkedArray | pa.Array, name: str, type: Type, source: Path, first_row: int = 0
) -> Array:
    """The column as int64, float32 or str [n]; every value must be there and finite.

    first_row: how many rows of the file come before this part, so that an error can name the row.
    """
    check_type(column.type, name, type, source)
    refuse_missing(column, name, source, first_row)
    if type == "string":
        texts: Array = column.cast(pa.large_string()).to_numpy(zero_copy_only=False).astype(np.str_)
        if texts.dtype.itemsize > 4 * LONGEST_STRING:
            row = int(np.strings.str_len(texts).argmax())
            raise DataError(
                f"{source}: column '{name}', row {first_row + row + 1}: a string of "
                f"{len(str(texts[row]))} characters; ids may have up to {LONGEST_STRING}"
            )
        return texts
    try:
        numbers: Array = column.cast(pa.int64() if type == "int64" else pa.float64()).to_numpy(
            zero_copy_only=False
        )
    except pa.ArrowInvalid as broken:
        raise DataError(f"{source}: column '{name}' does not fit {type}: {broken}") from broken
    if type == "int64":
        return numbers
    refuse_not_finite(numbers, name, source, first_row)
    return numbers.astype(np.float32)


def clip_target(raw: Array, target: Target, name: str, source: Path, first_row: int = 0) -> Array:
    """The target column as float32 within the schema's range; `name` is the file's column it came from."""
    refuse_not_finite(raw, name, source, first_row)
    return np.clip(raw, target.low, target.high).astype(np.float32)


def refuse_missing(column: pa.ChunkedArray | pa.Array, name: str, source: Path, first_row: int = 0) -> None:
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise DataError(
            f"{source}: column '{name}', row {first_row + row + 1}: value is missing (empty or NaN); "
            f"{column.null_count} rows here are so; fill or drop them"
        )


def refuse_not_finite(numbers: Array, name: str, source: Path, first_row: int = 0) -> None:
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{source}: column '{name}', row {first_row + row + 1}: {numbers[row]} is not a finite number; "
            f"{int(bad.sum())} rows here are so; drop or mend them"
        )
