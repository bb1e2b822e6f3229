"""Reads CSV and Parquet files into Arrow tables."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ghostless.contract.errors import InvalidRequestError


def read_table(path: Path, csv_types: Mapping[str, pa.DataType]) -> pa.Table:
    """`csv_types`: types of CSV columns that must not be inferred; an id like "007" would be read as a number."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidRequestError(f"{path}: expected a .csv or .parquet file")
    try:
        if path.suffix.lower() == ".parquet":
            return pyarrow.parquet.read_table(path)
        return pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(column_types=dict(csv_types)))
    except (OSError, pa.ArrowException) as error:
        raise InvalidRequestError(f"can't read {path}: {error}") from error
