"""Loads the dataset that the value of `--data` names."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ghostless.contract.errors import ConfigError
from learning.data.kuairand import load_kuairand
from learning.data.kuairec import load_kuairec
from learning.data.synthetic import DEMO_ROWS, SyntheticVideos
from learning.data.table import Dataset, Table
from learning.data.tabular import open_parquet_stream, read_csv_table
from learning.data.toy import TOY_ROWS, toy
from learning.data.uber import load_uber
from learning.data.wechat import load_wechat
from learning.errors import DataError
from learning.schema import Schema, Target

ACCEPTED = (
    "synthetic, synthetic:ROWS, toy, kuairand:DIR, kuairec:PATH, wechat:DIR, uber:PATH, "
    "or a CSV or Parquet file with a schema"
)

_LOADERS: dict[str, Callable[[Path], Table]] = {
    "kuairand": load_kuairand,
    "kuairec": load_kuairec,
    "wechat": load_wechat,
    "uber": load_uber,
}


def load(
    spec: str, schema: Path | Schema | None = None, rows: int | None = None, target: Target | None = None
) -> Dataset:
    """The dataset that `spec` names.

    schema: the schema, or its file, of a CSV or Parquet `spec`. The known sources have built-in schemas; for them, a
    file is an error and a schema is ignored.
    rows: use only this many rows from the start; a generated source generates this number of rows.
    target: its range is used if the schema file has none; otherwise the range comes from the data.
    """
    if rows is not None and rows < 1:
        raise ConfigError(f"rows is {rows}, expected at least 1")
    name, _, rest = spec.partition(":")
    if name in ("synthetic", "toy", *_LOADERS) and isinstance(schema, Path):
        raise ConfigError(f"data '{spec}' has a built-in schema; omit the schema {schema}")
    if name == "synthetic":
        wanted = _count(rest, spec) if rest else rows or DEMO_ROWS
        return SyntheticVideos(seed=0).sample(min(wanted, rows or wanted), seed=0)
    if spec == "toy":
        return toy(rows or TOY_ROWS, seed=0)
    if name in _LOADERS:
        if not rest:
            raise ConfigError(f"data '{spec}' needs a path after the colon, as in {name}:PATH")
        return _head(_LOADERS[name](Path(rest)), rows)
    return _from_file(Path(spec), schema, rows, target)


def _from_file(path: Path, schema: Path | Schema | None, rows: int | None, target: Target | None) -> Dataset:
    if not path.exists():
        raise DataError(f"data '{path}' is neither a file nor a known source; expected {ACCEPTED}")
    if schema is None:
        raise ConfigError(f"data '{path}' needs a schema file; docs/data.md shows one")
    meant = schema if isinstance(schema, Schema) else Schema.read(schema)
    if target is not None and not meant.target.is_bounded:
        meant = replace(meant, target=replace(meant.target, low=target.low, high=target.high))
    if path.is_dir() or path.suffix == ".parquet":
        stream = open_parquet_stream(path, meant)
        return stream if rows is None else stream.head(rows)
    if path.suffix == ".csv":
        return _head(read_csv_table(path, meant), rows)
    raise DataError(f"{path}: expected a file that ends in .csv or .parquet")


def _head(table: Table, rows: int | None) -> Table:
    return table if rows is None or rows >= table.rows else table.take(np.arange(rows))


def _count(text: str, spec: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"data '{spec}': '{text}' is not a number of rows")
    return int(text)
