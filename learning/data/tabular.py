"""Reads any CSV or Parquet file with a schema file."""

from pathlib import Path

from learning.data.columns import clip, clipped_share, numbers, values
from learning.data.files import read_csv
from learning.data.stream import ParquetStream
from learning.data.table import Table
from learning.data.target_range import with_range
from learning.errors import DataError
from learning.schema import Schema, Type


def read_csv_table(path: Path, schema: Schema) -> Table:
    types: dict[str, Type] = {feature.name: feature.type for feature in schema.features}
    target = schema.target.name
    read = read_csv(path, {**types, target: "float32"})
    columns = {name: values(read[name], name, type, path) for name, type in types.items()}
    raw = numbers(read[target], target, path)
    schema = with_range(schema, raw)
    return Table(schema, columns, clip(raw, schema.target), clipped_share(raw, schema.target))


def open_parquet_stream(path: Path, schema: Schema) -> ParquetStream:
    """A stream of one file, or of all *.parquet files of a folder in the order of their names."""
    paths = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not paths:
        raise DataError(f"{path}: no *.parquet file in this folder")
    stream = ParquetStream(paths, schema)
    if schema.target.is_bounded:
        return stream
    return ParquetStream(paths, with_range(schema, stream.target_sample()))
