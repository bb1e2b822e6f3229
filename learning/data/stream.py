"""Reads Parquet files larger than memory, row group by row group."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from learning.data.accumulate import UniformSample
from learning.data.buffer import ShuffleBuffer
from learning.data.columns import check_type, clip, clipped_share, numbers, require, values
from learning.data.files import open_parquet
from learning.data.table import Array, Table, check_fraction, check_shard
from learning.errors import DataError
from learning.schema import Schema

DEFAULT_BUFFER_ROWS = 262_144

_HASH_ROWS = 1_000_000  # row numbers hashed at a time, because a row group may be larger than memory


@dataclass(frozen=True)
class Selection:
    """Rows whose number hashes into [start, stop) of [0, 1): a part of a file without a copy."""

    seed: int
    start: float
    stop: float

    def mask(self, row_numbers: Array) -> Array:
        position = _hash(row_numbers, self.seed)
        chosen: Array = (position >= self.start) & (position < self.stop)
        return chosen


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file; `first` is the number of its first row, counted over all files."""

    path: Path
    index: int
    first: int
    rows: int
    first_in_file: int


class ParquetStream:
    """A `Dataset` with at most `buffer_rows` rows in memory (or two batches, if that is more), plus the chunk that is
    being decoded, an eighth of that.

    Shuffling reads the row groups in random order and passes their rows through a shuffle buffer. The larger the buffer
    is relative to the file, the closer this comes to a full shuffle, so a file that is sorted by time or user should
    have small row groups.
    """

    def __init__(
        self,
        paths: Path | Sequence[Path],
        schema: Schema,
        buffer_rows: int = DEFAULT_BUFFER_ROWS,
        selections: Sequence[Selection] = (),
        limit: int | None = None,
    ) -> None:
        """selections: only rows that are in all of them; limit: only this many rows from the start of the files."""
        self.schema = schema
        self.buffer_rows = buffer_rows
        self._paths = [paths] if isinstance(paths, Path) else list(paths)
        self._selections = tuple(selections)
        self._groups = list(_row_groups(self._paths, schema))
        stored = sum(group.rows for group in self._groups)
        if not stored:
            raise DataError(f"{', '.join(map(str, self._paths))}: has no rows")
        self._limit = stored if limit is None else min(limit, stored)

    @cached_property
    def _chosen(self) -> list[int]:
        """Number of rows of each row group that belong to this stream, counted by hashing row numbers without
        reading."""
        return [
            sum(
                int(self._mask(first, min(_HASH_ROWS, group.first + group.rows - first)).sum())
                for first in range(group.first, group.first + group.rows, _HASH_ROWS)
            )
            for group in self._groups
        ]

    @property
    def rows(self) -> int:
        return sum(self._chosen)

    def head(self, rows: int) -> "ParquetStream":
        """The first `rows` rows of the files."""
        return ParquetStream(self._paths, self.schema, self.buffer_rows, self._selections, min(rows, self._limit))

    def split(self, fraction: float, seed: int) -> "tuple[ParquetStream, ParquetStream]":
        """Two disjoint parts by the hash of the row number; the first has about `fraction` of the rows."""
        check_fraction(fraction)
        first, second = (
            ParquetStream(self._paths, self.schema, self.buffer_rows, (*self._selections, selection), self._limit)
            for selection in (Selection(seed, 0.0, fraction), Selection(seed, fraction, 1.0))
        )
        return first, second

    def fingerprint(self) -> str:
        """SHA-256 over schema, selection, and each file's size and footer. The footer contains sizes, offsets and
        statistics of every column chunk, so changed content is detected without reading it, unless all of these stay
        the same."""
        digest = hashlib.sha256(json.dumps(self.schema.to_dict(), sort_keys=True).encode())
        parts = [[part.seed, part.start, part.stop] for part in self._selections]
        digest.update(json.dumps([parts, self._limit]).encode())
        for path in self._paths:
            digest.update(_footer(path))
        return digest.hexdigest()

    def batches(
        self, rows: int, seed: int | None = None, epoch: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Table]:
        """Like `Dataset.batches`. Each rank reads only the row groups of its own share."""
        check_shard(rows, rank, world)
        # The order of the row groups must be the same on all ranks; the draws of the buffer need not be.
        order = np.arange(len(self._groups))
        shuffle = None
        if seed is not None:
            order = np.random.default_rng((seed, epoch)).permutation(order)
            shuffle = np.random.default_rng((seed, epoch, rank))
        share = self.rows // world
        buffer = ShuffleBuffer(max(self.buffer_rows, 2 * rows), shuffle)
        for part in self._share(order, rank * share, (rank + 1) * share, chunk_rows=max(1, buffer.room // 8)):
            start = 0
            while start < part.rows:
                stop = min(part.rows, start + buffer.room)
                buffer.add(part.take(slice(start, stop)))
                start = stop
                if buffer.full or (shuffle is None and buffer.rows >= rows):
                    yield from buffer.drain(rows)
        yield from buffer.drain(rows, last=True)

    def _share(self, order: Array, start: int, stop: int, chunk_rows: int) -> Iterator[Table]:
        """The selected rows at positions [start, stop) of the row groups in this order."""
        position = 0
        for number in order:
            chosen = self._chosen[number]
            if position + chosen > start and position < stop:
                yield from self._cut(self._groups[number], position, start, stop, chunk_rows)
            position += chosen

    def _cut(self, group: RowGroup, position: int, start: int, stop: int, chunk_rows: int) -> Iterator[Table]:
        for table in self._read(group, chunk_rows):
            low, high = max(start - position, 0), min(stop - position, table.rows)
            if low < high:
                yield table if (low, high) == (0, table.rows) else table.take(slice(low, high))
            position += table.rows
            if position >= stop:
                return

    def _read(self, group: RowGroup, chunk_rows: int) -> Iterator[Table]:
        """The selected rows of one row group, decoding at most `chunk_rows` rows at a time."""
        target = self.schema.target
        names = [feature.name for feature in self.schema.features] + [target.name]
        done = 0
        with open_parquet(group.path) as file:
            try:
                for chunk in file.iter_batches(chunk_rows, row_groups=[group.index], columns=names):
                    where = group.first_in_file + done
                    columns = {
                        feature.name: values(chunk[feature.name], feature.name, feature.type, group.path, where)
                        for feature in self.schema.features
                    }
                    raw = numbers(chunk[target.name], target.name, group.path, where)
                    table = Table(self.schema, columns, clip(raw, target))
                    mask = self._mask(group.first + done, chunk.num_rows)
                    yield table if mask.all() else table.take(mask)
                    done += chunk.num_rows
            except (OSError, pa.ArrowException) as error:
                raise DataError(f"{group.path}: damaged Parquet file: {error}") from error

    @cached_property
    def clipped(self) -> float:
        """Share of clipped targets among all rows of the files, selected or not; reads the target's column once."""
        shares = [(clipped_share(raw, self.schema.target), len(raw)) for raw in self._targets()]
        return sum(share * rows for share, rows in shares) / max(1, sum(rows for _, rows in shares))

    def target_sample(self, most: int = 1_000_000) -> Array:
        """A uniform sample of up to `most` raw targets of the files, sorted."""
        sample = UniformSample(most)
        for raw in self._targets():
            sample.add(raw)
        return sample.sorted()

    def _targets(self) -> Iterator[Array]:
        """The raw targets, in chunks."""
        name = self.schema.target.name
        for group in self._groups:
            done = 0
            with open_parquet(group.path) as file:
                try:
                    for chunk in file.iter_batches(_HASH_ROWS // 8, row_groups=[group.index], columns=[name]):
                        yield numbers(chunk[name], name, group.path, group.first_in_file + done)
                        done += chunk.num_rows
                except (OSError, pa.ArrowException) as broken:
                    raise DataError(f"{group.path}: damaged Parquet file: {broken}") from broken

    def _mask(self, first: int, rows: int) -> Array:
        row_numbers = np.arange(first, first + rows, dtype=np.uint64)
        mask: Array = row_numbers < self._limit
        for selection in self._selections:
            mask &= selection.mask(row_numbers)
        return mask


def _row_groups(paths: Sequence[Path], schema: Schema) -> Iterator[RowGroup]:
    first = 0
    for path in paths:
        with open_parquet(path) as file:
            stored = file.schema_arrow
            names = [feature.name for feature in schema.features] + [schema.target.name]
            require(names, stored.names, path)
            for feature in schema.features:
                check_type(stored.field(feature.name).type, feature.name, feature.type, path)
            check_type(stored.field(schema.target.name).type, schema.target.name, "float32", path)
            start = first
            for index in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(index).num_rows
                yield RowGroup(path, index, first, rows, first - start)
                first += rows


def _footer(path: Path) -> bytes:
    """A Parquet file's size and last part: metadata, its length in 4 bytes, and the magic number."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(size - 8)
        length = int.from_bytes(file.read(4), "little")
        file.seek(size - 8 - length)
        return size.to_bytes(8, "little") + file.read(length)


def _hash(row_numbers: Array, seed: int) -> Array:
    """SplitMix64 (Steele, Lea and Flood, 2014) of the row numbers, as float64 in [0, 1)."""
    offset = np.uint64(int(np.random.default_rng(seed).integers(2**63)))
    z = row_numbers * np.uint64(0x9E3779B97F4A7C15) + offset
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    position: Array = (z >> np.uint64(11)) * 2.0**-53
    return position
