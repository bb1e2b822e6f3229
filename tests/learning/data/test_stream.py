import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghostless.contract.errors import ConfigError
from learning.data.buffer import ShuffleBuffer
from learning.data.encoding import Encoding
from learning.data.stream import ParquetStream
from learning.data.table import Table, concatenate
from learning.errors import DataError
from learning.schema import Feature, Schema, Target

SCHEMA = Schema(
    (
        Feature("user_id", kind="id", role="context"),
        Feature("city", kind="id", type="string"),
        Feature("duration_ms", kind="bucket", type="float32", buckets=20),
        Feature("age", kind="number", type="float32"),
    ),
    Target("y", unit="", low=0.0, high=1e9),
)


def raw(rows: int, start: int = 0) -> pa.Table:
    """Row i has target i, so a batch tells which rows it has."""
    number = np.arange(start, start + rows)
    random = np.random.default_rng(start)
    return pa.table(
        {
            "user_id": random.integers(0, 500, rows),
            "unused": np.zeros(rows),
            "city": pa.array([f"city {i}" for i in random.integers(0, 30, rows)]).dictionary_encode(),
            "duration_ms": random.integers(1, 60_000, rows),
            "age": random.normal(40, 9, rows),
            "y": number.astype(np.float64),
        }
    )


def as_table(stored: pa.Table) -> Table:
    columns = {
        "user_id": stored["user_id"].to_numpy(),
        "city": np.array(stored["city"].to_pylist()),
        "duration_ms": stored["duration_ms"].to_numpy().astype(np.float32),
        "age": stored["age"].to_numpy().astype(np.float32),
    }
    return Table(SCHEMA, columns, stored["y"].to_numpy().astype(np.float32))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """10,000 rows in two files, with row groups of 700 rows."""
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(raw(6000), paths[0], row_group_size=700)
    pq.write_table(raw(4000, start=6000), paths[1], row_group_size=700)
    return paths


def rows_of(batches: list[Table]) -> list[int]:
    return [int(value) for batch in batches for value in batch.target]


def same(one: Table, other: Table) -> bool:
    return one.fingerprint() == other.fingerprint()


def test_in_order_it_equals_the_rows_in_memory(files: list[Path]) -> None:
    memory = concatenate([as_table(pq.read_table(path)) for path in files])
    stream = ParquetStream(files, SCHEMA, buffer_rows=1500)
    assert stream.rows == memory.rows == 10_000
    streamed, held = list(stream.batches(512)), list(memory.batches(512))
    assert [batch.rows for batch in streamed] == [batch.rows for batch in held]
    assert all(same(one, other) for one, other in zip(streamed, held, strict=True))


def test_its_encoding_equals_that_of_the_rows_in_memory(files: list[Path]) -> None:
    memory = Encoding.fit(concatenate([as_table(pq.read_table(path)) for path in files])).state()
    streamed = Encoding.fit(ParquetStream(files, SCHEMA, buffer_rows=1500)).state()
    assert memory.keys() == streamed.keys()
    for name, value in memory.items():
        assert np.array_equal(value, streamed[name]), name


def test_shuffled_it_gives_every_row_once_and_far_from_home(files: list[Path]) -> None:
    stream = ParquetStream(files, SCHEMA, buffer_rows=2000)
    batches = list(stream.batches(256, seed=1))
    order = np.array(rows_of(batches))
    assert sorted(order) == list(range(10_000))
    assert {batch.rows for batch in batches[:-1]} == {256}
    # A full shuffle would move a row by a third of the file on average, and leave neighbours 1/3 apart too.
    assert np.abs(np.diff(order)).mean() > 0.15 * 10_000
    assert np.array_equal(order, rows_of(list(stream.batches(256, seed=1))))
    assert not np.array_equal(order, rows_of(list(stream.batches(256, seed=1, epoch=1))))


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("seed", [None, 4])
def test_ranks_share_disjointly_and_evenly(files: list[Path], world: int, seed: int | None) -> None:
    part = ParquetStream(files, SCHEMA, buffer_rows=1500).split(0.7, seed=9)[0]
    shares = [list(part.batches(300, seed, epoch=2, rank=rank, world=world)) for rank in range(world)]
    sizes = [[batch.rows for batch in share] for share in shares]
    assert all(size == sizes[0] for size in sizes)
    seen = [row for share in shares for row in rows_of(share)]
    assert len(seen) == len(set(seen)) == part.rows - part.rows % world


def test_a_rank_reads_only_its_own_row_groups(tmp_path: Path) -> None:
    """A bad value in the last row group stops the rank that reads it, and no other."""
    stored = raw(1000).to_pydict()
    stored["y"][990] = float("nan")
    pq.write_table(pa.table(stored), tmp_path / "d.parquet", row_group_size=100)
    stream = ParquetStream(tmp_path / "d.parquet", SCHEMA)
    assert len(rows_of(list(stream.batches(100, rank=0, world=2)))) == 500
    with pytest.raises(DataError, match="row 991"):
        list(stream.batches(100, rank=1, world=2))


def test_split_is_disjoint_complete_random_and_nests(files: list[Path]) -> None:
    stream = ParquetStream(files, SCHEMA)
    rest, test = stream.split(0.8, seed=1)
    train, validation = rest.split(0.9, seed=2)
    parts = [rows_of(list(part.batches(1000))) for part in (train, validation, test)]
    assert [len(part) for part in parts] == [train.rows, validation.rows, test.rows]
    assert sorted(parts[0] + parts[1] + parts[2]) == list(range(10_000))
    # Binomial counts: the bounds are five standard deviations wide.
    assert abs(test.rows - 2000) < 5 * 40
    assert abs(validation.rows - 800) < 5 * 27
    assert abs(np.mean(parts[2]) - 5000) < 5 * 2887 / np.sqrt(2000)
    assert parts[2] == rows_of(list(stream.split(0.8, seed=1)[1].batches(1000)))
    assert parts[2] != rows_of(list(stream.split(0.8, seed=5)[1].batches(1000)))


def test_head_is_the_first_rows(files: list[Path]) -> None:
    stream = ParquetStream(files, SCHEMA).head(6500)
    assert stream.rows == 6500
    assert rows_of(list(stream.batches(1000))) == list(range(6500))
    assert ParquetStream(files, SCHEMA).head(10**9).rows == 10_000


def test_fingerprint_tells_files_parts_and_schemas_apart(files: list[Path], tmp_path: Path) -> None:
    stream = ParquetStream(files, SCHEMA)
    changed = raw(6000).to_pydict()
    changed["y"][5] = 1e6
    pq.write_table(pa.table(changed), tmp_path / "c.parquet", row_group_size=700)
    other = Schema(SCHEMA.features, Target("y", unit="s", low=0.0, high=1e9))
    different = [
        stream,
        ParquetStream(files[:1], SCHEMA),
        ParquetStream(files[::-1], SCHEMA),
        ParquetStream([tmp_path / "c.parquet", files[1]], SCHEMA),
        ParquetStream(files, other),
        stream.head(10),
        *stream.split(0.5, seed=0),
    ]
    assert len({source.fingerprint() for source in different}) == len(different)
    assert stream.fingerprint() == ParquetStream(files, SCHEMA).fingerprint()


@pytest.mark.parametrize("seed", [None, 1])
def test_memory_is_bounded_by_the_buffer_not_by_the_file(tmp_path: Path, seed: int | None) -> None:
    """One row group of 2 million rows, 40 bytes each: 80 MB, walked with a buffer of 20,000 rows, 0.8 MB."""
    schema = Schema(
        tuple(Feature(f"f{i}", kind="number", type="float32") for i in range(9)),
        Target("y", unit="", low=0.0, high=1.0),
    )
    rows = 2_000_000
    random = np.random.default_rng(0)
    column = pa.array(random.random(rows, np.float32))
    names = [feature.name for feature in schema.features] + ["y"]
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table(dict.fromkeys(names, column)), path, row_group_size=rows)
    del column
    stream = ParquetStream(path, schema, buffer_rows=20_000)
    assert stream.rows == rows

    before, seen, arrow_peak = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    try:
        for batch in stream.batches(2048, seed):
            seen += batch.rows
            arrow_peak = max(arrow_peak, pa.total_allocated_bytes() - before)
        numpy_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == rows
    buffer_bytes = 20_000 * 40
    assert numpy_peak < 8 * buffer_bytes  # a few copies while it is shuffled
    # Arrow holds a page, its dictionary and a read buffer per column (about 2.5 MB), not the row group.
    assert arrow_peak < 10 * 4e6


def test_the_buffer_refuses_more_than_it_holds() -> None:
    buffer = ShuffleBuffer(10, np.random.default_rng(0))
    buffer.add(as_table(raw(8)))
    with pytest.raises(ValueError, match="do not fit"):
        buffer.add(as_table(raw(3)))
    assert buffer.room == 2


def write(path: Path, **changed: object) -> Path:
    columns = {**raw(10).to_pydict(), **changed}
    pq.write_table(pa.table({name: values for name, values in columns.items() if values is not None}), path)
    return path


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"city": None}, "no column 'city'; it has user_id, unused, duration_ms, age, y"),
        ({"y": None}, "no column 'y'"),
        ({"user_id": ["a"] * 10}, "column 'user_id' is string, expected int64"),
        ({"user_id": [1.5] * 10}, "column 'user_id' is double, expected int64"),
        ({"city": [1] * 10}, "column 'city' is int64, expected string"),
        ({"y": ["1"] * 10}, "column 'y' is string, expected float32"),
        ({"y": [1.0] * 4 + [None] + [1.0] * 5}, "column 'y', row 5: value is missing"),
        ({"y": [1.0] * 9 + [float("nan")]}, "column 'y', row 10: nan is not a finite number"),
        ({"y": [1.0] * 3 + [float("inf")] * 7}, "column 'y', row 4: inf is not a finite number; 7 such rows"),
        ({"age": [1.0] * 9 + [float("nan")]}, "column 'age', row 10: nan is not a finite number"),
        ({"user_id": [None] + [1] * 9}, "column 'user_id', row 1: value is missing"),
        ({"city": ["a"] * 8 + ["b" * 300] * 2}, "column 'city', row 9: a string of 300 characters"),
    ],
)
def test_bad_columns_are_named(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    path = write(tmp_path / "bad.parquet", **changed)
    with pytest.raises(DataError, match=message) as error:
        list(ParquetStream(path, SCHEMA).batches(100))
    assert str(error.value).startswith(str(path))


def test_the_row_is_counted_within_its_file(files: list[Path], tmp_path: Path) -> None:
    stored = raw(2000).to_pydict()
    stored["y"][1234] = None
    pq.write_table(pa.table(stored), tmp_path / "c.parquet", row_group_size=700)
    with pytest.raises(DataError, match=r"c.parquet: column 'y', row 1235:"):
        list(ParquetStream([files[0], tmp_path / "c.parquet"], SCHEMA).batches(100))


def test_no_rows_no_file_and_no_parquet(tmp_path: Path) -> None:
    pq.write_table(raw(10).slice(0, 0), tmp_path / "empty.parquet")
    (tmp_path / "text.parquet").write_text("user_id,y\n1,2\n")
    for name, message in [
        ("empty.parquet", "has no rows"),
        ("text.parquet", "not a readable Parquet file"),
        ("absent.parquet", "not a readable Parquet file"),
    ]:
        with pytest.raises(DataError, match=f"{name}: {message}"):
            ParquetStream(tmp_path / name, SCHEMA)


def test_a_file_damaged_in_the_middle(files: list[Path]) -> None:
    content = bytearray(files[0].read_bytes())
    content[len(content) // 4 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 4)
    files[0].write_bytes(content)
    with pytest.raises(DataError, match=r"a.parquet: damaged Parquet file"):
        list(ParquetStream(files, SCHEMA).batches(1000))


def test_a_split_or_shard_that_makes_no_sense_is_refused(files: list[Path]) -> None:
    stream = ParquetStream(files, SCHEMA)
    with pytest.raises(ConfigError, match="fraction"):
        stream.split(1.5, seed=0)
    with pytest.raises(ConfigError, match="rank"):
        list(stream.batches(10, rank=3, world=2))
