"""Rows in memory, and the protocol of all sources of rows."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ghostless.contract.errors import ConfigError
from learning.errors import DataError
from learning.schema import Feature, Schema

Array = npt.NDArray[Any]

# Strings are stored in fixed-width arrays, which are fast to sort and search, so one very long id would inflate its
# whole column.
LONGEST_STRING = 256


class Dataset(Protocol):
    """A source of rows that can be read many times: `Table` or `ParquetStream`."""

    @property
    def schema(self) -> Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def clipped(self) -> float:
        """Share of the source's rows whose target was outside the schema's range."""
        ...

    def fingerprint(self) -> str:
        """A hash that identifies the data, so that a checkpoint can refer to it (64 hex digits)."""
        ...

    def batches(
        self, rows: int, seed: int | None = None, epoch: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator["Table"]:
        """All rows once, in batches of `rows` (the last may be shorter).

        Without a seed, rows are in their original order; with a seed, they are shuffled by (seed, epoch). Each of
        `world` processes gets a disjoint share with the same number of batches of the same lengths; for this, up to
        `world - 1` rows are left out.
        """
        ...

    def split(self, fraction: float, seed: int) -> "tuple[Dataset, Dataset]":
        """Two disjoint random parts; the first has about `fraction` of the rows."""
        ...


@dataclass(frozen=True)
class Table:
    """n rows in memory.

    columns: raw feature values by name, each [n]: int64, float32 or str, as the schema says.
    target: float32 [n], already clipped to the schema's [low, high].
    clipped: share of the source's rows whose target was outside that range.
    """

    schema: Schema
    columns: Mapping[str, Array]
    target: Array
    clipped: float = 0.0

    def __post_init__(self) -> None:
        names = {feature.name for feature in self.schema.features}
        if names != set(self.columns):
            raise DataError(f"table has columns {sorted(self.columns)}, but its schema has {sorted(names)}")
        columns = {feature.name: _typed(feature, self.columns[feature.name]) for feature in self.schema.features}
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "target", np.asarray(self.target, np.float32))
        lengths = {name: len(values) for name, values in columns.items() if len(values) != len(self.target)}
        if lengths:
            raise DataError(f"table has {len(self.target)} targets, but columns of lengths {lengths}")

    def __len__(self) -> int:
        return len(self.target)

    @property
    def rows(self) -> int:
        return len(self.target)

    def take(self, index: Array | slice) -> "Table":
        """The rows at `index` (positions, mask or slice), in that order."""
        columns = {name: values[index] for name, values in self.columns.items()}
        return Table(self.schema, columns, self.target[index], self.clipped)

    def split(self, fraction: float, seed: int) -> "tuple[Table, Table]":
        """Two disjoint random parts of round(fraction n) rows and the rest, each in the original order."""
        check_fraction(fraction)
        order = np.random.default_rng(seed).permutation(self.rows)
        first = round(fraction * self.rows)
        return self.take(np.sort(order[:first])), self.take(np.sort(order[first:]))

    def fingerprint(self) -> str:
        """SHA-256 over schema and content; it depends on the order of the rows."""
        digest = hashlib.sha256(json.dumps(self.schema.to_dict(), sort_keys=True).encode())
        for name in sorted(self.columns):
            digest.update(_content(self.columns[name]))
        digest.update(_content(self.target))
        return digest.hexdigest()

    def batches(
        self, rows: int, seed: int | None = None, epoch: int = 0, rank: int = 0, world: int = 1
    ) -> "Iterator[Table]":
        """Like `Dataset.batches`. The k-th batches of all ranks together are the k-th batch of `world * rows` rows of a
        single process, so data-parallel training gives the same result."""
        check_shard(rows, rank, world)
        order = None if seed is None else np.random.default_rng((seed, epoch)).permutation(self.rows)
        for start in range(0, self.rows, world * rows):
            share = min(world * rows, self.rows - start) // world
            if share == 0:
                return
            first = start + rank * share
            span = slice(first, first + share)
            yield self.take(span if order is None else order[span])


def concatenate(tables: list[Table]) -> Table:
    """One table with the rows of all tables, in order; they must have the same schema."""
    schema = tables[0].schema
    columns = {
        feature.name: np.concatenate([table.columns[feature.name] for table in tables]) for feature in schema.features
    }
    clipped = sum(table.clipped * table.rows for table in tables) / max(1, sum(table.rows for table in tables))
    return Table(schema, columns, np.concatenate([table.target for table in tables]), clipped)


def sample(dataset: Dataset, most: int, seed: int) -> Table:
    """All rows as a table, or about `most` random ones."""
    if dataset.rows > most:
        dataset, _ = dataset.split(most / dataset.rows, seed)
    return concatenate(list(dataset.batches(most)))


def check_fraction(fraction: float) -> None:
    if not 0.0 < fraction < 1.0:
        raise ConfigError(f"split fraction is {fraction}, expected a number between 0 and 1")


def check_shard(rows: int, rank: int, world: int) -> None:
    if rows < 1:
        raise ConfigError(f"batch of {rows} rows, expected at least 1")
    if not 0 <= rank < world:
        raise ConfigError(f"rank {rank} of {world} processes, expected 0 to {world - 1}")


def _typed(feature: Feature, values: Array) -> Array:
    if feature.type == "string":
        if values.dtype.kind == "O":
            values = values.astype(np.str_)
        if values.dtype.kind != "U":
            raise DataError(f"feature '{feature.name}': values are {values.dtype}, expected strings")
        return values
    if values.dtype != np.dtype(feature.type):
        raise DataError(f"feature '{feature.name}': values are {values.dtype}, expected {feature.type}")
    return values


def _content(values: Array) -> bytes:
    if values.dtype.kind == "U":
        # The width of a string array depends on its origin, not on its content.
        width = max(1, int(np.strings.str_len(values).max(initial=1)))
        values = values.astype(f"<U{width}")
    return values.dtype.str.encode() + values.tobytes()
