"""Reads CSV and Parquet files with explicit types; errors name the file and the column."""

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from learning.data.columns import require
from learning.errors import DataError
from learning.schema import Type

# Numbers are read as float64, because they are divided and checked before they become float32.
_ARROW_TYPES = {"int64": pa.int64(), "float32": pa.float64(), "string": pa.string()}

_READ_BYTES = 1 << 18


def read_csv(
    path: Path,
    types: Mapping[str, Type],
    header: Sequence[str] | None = None,
    all_columns: bool = False,
) -> pa.Table:
    """The columns named in `types`; with `all_columns` also the others, as strings.

    header: the names of the columns, if the file has no header.
    """
    names = list(header) if header else csv_header(path)
    require(types, names, path)
    wanted = {name: types.get(name, "string") for name in (names if all_columns else types)}
    convert = pyarrow.csv.ConvertOptions(
        include_columns=list(wanted),
        column_types={name: _ARROW_TYPES[type] for name, type in wanted.items()},
    )

    def read(use_threads: bool) -> pa.Table:
        options = pyarrow.csv.ReadOptions(column_names=list(header) if header else None, use_threads=use_threads)
        return pyarrow.csv.read_csv(path, read_options=options, convert_options=convert)

    try:
        try:
            table = read(use_threads=True)
        except pa.ArrowInvalid:
            # Only the single-threaded reader reports the line of a bad value.
            table = read(use_threads=False)
    except pa.ArrowException as error:
        raise DataError(f"{path}: {_explain(str(error), names)}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    return _not_empty(table, path)


def csv_header(path: Path) -> list[str]:
    try:
        # Invalid UTF-8 is reported by the reader of the rows, which knows the line.
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
            names = next(csv.reader(lines), [])
    except (OSError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if not names:
        raise DataError(f"{path}: is empty, expected a header line with the names of the columns")
    return names


def open_parquet(path: Path) -> pyarrow.parquet.ParquetFile:
    """Open a file and read its footer; rows are read later."""
    try:
        # By default, Arrow would read whole column chunks before it decodes the first row.
        return pyarrow.parquet.ParquetFile(path, buffer_size=_READ_BYTES, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: not a readable Parquet file: {error}") from error


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the named columns, or all."""
    with open_parquet(path) as file:
        require(columns or (), file.schema_arrow.names, path)
        try:
            table = file.read(columns)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: damaged Parquet file: {error}") from error
    return _not_empty(table, path)


def _not_empty(table: pa.Table, path: Path) -> pa.Table:
    if not table.num_rows:
        raise DataError(f"{path}: has no rows")
    return table


def _explain(message: str, names: Sequence[str]) -> str:
    """Arrow's message with the column's name, and `line` instead of `Row`, because it counts the header."""
    message = re.sub(r"In CSV column #(\d+): ", lambda match: f"column '{names[int(match[1])]}', ", message)
    return re.sub(r"Row #(\d+): ", r"line \1: ", message)
