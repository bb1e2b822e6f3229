import time
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from ghostless.contract.errors import ConfigError
from learning.data.encoding import Encoding
from learning.data.load import load
from learning.data.stream import ParquetStream
from learning.data.table import Table
from learning.errors import DataError

SCHEMA = """
[target]
name = "minutes"
unit = "min"
low = 0.0
high = 60.0

[[features]]
name = "rider"
kind = "id"
role = "context"
type = "string"

[[features]]
name = "zone"
kind = "id"
type = "int64"
embedding = 8

[[features]]
name = "distance_km"
kind = "bucket"
type = "float32"
buckets = 10

[[features]]
name = "rain"
kind = "number"
type = "float32"
"""

HEADER = "rider,zone,distance_km,rain,minutes,note"
ROWS = ("anna,3,1.5,0,12.5,x", "NA,-4,2,0.5,75,", "bo,3,10,1e-3,-1,z")


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    return path


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n" if lines else "")
    return path


def test_csv(tmp_path: Path, schema: Path) -> None:
    loaded = load(str(write(tmp_path / "rides.csv", HEADER, *ROWS)), schema)
    assert isinstance(loaded, Table)
    assert loaded.columns["rider"].tolist() == ["anna", "NA", "bo"]  # NA is a name here, not a gap
    assert loaded.columns["zone"].tolist() == [3, -4, 3]
    assert loaded.columns["distance_km"].tolist() == [1.5, 2.0, 10.0]
    assert loaded.columns["rain"] == pytest.approx([0, 0.5, 1e-3])
    assert loaded.target.tolist() == [12.5, 60.0, 0.0]


def test_csv_parquet_and_a_folder_of_parquet_are_the_same_rows(tmp_path: Path, schema: Path) -> None:
    rides = write(tmp_path / "rides.csv", HEADER, *ROWS)
    keep = pyarrow.csv.ConvertOptions(column_types={"rider": "string"}, strings_can_be_null=False)
    stored = pyarrow.csv.read_csv(rides, convert_options=keep)
    parts = tmp_path / "parts"
    parts.mkdir()
    pq.write_table(stored, tmp_path / "rides.parquet")
    pq.write_table(stored.slice(0, 2), parts / "0.parquet")
    pq.write_table(stored.slice(2), parts / "1.parquet")
    (expected,) = load(str(rides), schema).batches(10)
    for source in (tmp_path / "rides.parquet", parts):
        loaded = load(str(source), schema)
        assert isinstance(loaded, ParquetStream)
        (batch,) = loaded.batches(10)
        assert batch.fingerprint() == expected.fingerprint()
    assert Encoding.fit(load(str(parts), schema)).vocabularies["rider"].tolist() == ["NA", "anna", "bo"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_first_rows(tmp_path: Path, schema: Path, suffix: str) -> None:
    rides = write(tmp_path / "rides.csv", HEADER, *ROWS)
    pq.write_table(pyarrow.csv.read_csv(rides), tmp_path / "rides.parquet")
    loaded = load(str(tmp_path / f"rides.{suffix}"), schema, rows=2)
    (batch,) = loaded.batches(10)
    assert (loaded.rows, batch.columns["zone"].tolist()) == (2, [3, -4])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty, expected a header"),
        ([HEADER], "has no rows"),
        (["rider,zone,rain,minutes", "a,1,2,3"], "no column 'distance_km'; it has rider, zone, rain, minutes"),
        ([HEADER, ROWS[0], "a,north,1,1,1,"], "column 'zone', line 3: .*int64: invalid value 'north'"),
        ([HEADER, "a,1.0,1,1,1,"], "column 'zone', line 2: .*invalid value '1.0'"),
        ([HEADER, "a,99999999999999999999,1,1,1,"], "column 'zone', line 2"),
        ([HEADER, "a,1,far,1,1,"], "column 'distance_km', line 2: .*'far'"),
        ([HEADER, ROWS[0], "a,,1,1,1,"], "column 'zone', row 2: value is missing"),
        ([HEADER, ROWS[0], "a,1,1,1,,"], "column 'minutes', row 2: value is missing"),
        ([HEADER, ROWS[0], "a,1,1,1,nan,"], "column 'minutes', row 2: value is missing"),
        ([HEADER, "a,1,1,1,-inf,"], "column 'minutes', row 1: -inf is not a finite number"),
        ([HEADER, "a,1,inf,1,1,"], "column 'distance_km', row 1: inf is not a finite number"),
        ([HEADER, ROWS[0], "a,1,1"], "line 3: Expected 6 columns, got 3"),
        ([HEADER, "x" * 300 + ",1,1,1,1,"], "column 'rider', row 1: a string of 300 characters"),
        (["zone," + HEADER, "1,a,1,1,1,1,"], "column 'zone' appears twice"),
    ],
)
def test_bad_csv_is_named(tmp_path: Path, schema: Path, lines: list[str], message: str) -> None:
    path = write(tmp_path / "rides.csv", *lines)
    with pytest.raises(DataError, match=message) as error:
        load(str(path), schema)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_unreadable_bytes_are_named(tmp_path: Path, schema: Path) -> None:
    path = tmp_path / "rides.csv"
    path.write_bytes(HEADER.encode() + b"\n\xff\xfe,1,1,1,1,\n")
    with pytest.raises(DataError, match=r"rides.csv: column 'rider', line 2: .*UTF8"):
        load(str(path), schema)


def test_files_that_cannot_be_data(tmp_path: Path, schema: Path) -> None:
    with pytest.raises(DataError, match=r"neither a file nor a known source; expected synthetic"):
        load(str(tmp_path / "absent.csv"), schema)
    with pytest.raises(DataError, match=r"ends in .csv or .parquet"):
        load(str(write(tmp_path / "rides.xlsx", "x")), schema)
    with pytest.raises(ConfigError, match="needs a schema file"):
        load(str(write(tmp_path / "rides.csv", HEADER, *ROWS)))
    (tmp_path / "parts").mkdir()
    with pytest.raises(DataError, match=r"no \*.parquet file in this folder"):
        load(str(tmp_path / "parts"), schema)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "bucket"', 'kind = "bin"', "feature 'distance_km': kind is 'bin'"),
        ('role = "context"', 'role = "user"', "feature 'rider': role is 'user'"),
        ('type = "int64"', 'type = "int32"', "feature 'zone': type is 'int32'"),
        ("buckets = 10", "buckets = 1", "feature 'distance_km': .* buckets 1"),
        ('kind = "number"\ntype = "float32"', 'kind = "number"', "feature 'rain': kind 'number' needs type float32"),
        ("embedding = 8", "width = 8", "width"),
        ("low = 0.0", "low = 60.0", "must be below"),
        ('name = "zone"', 'name = "rider"', "rider more than once"),
        ("[target]", "[aim]", "target"),
        ("[target]", "[target", "not a readable schema"),
    ],
)
def test_a_bad_schema_is_explained(tmp_path: Path, schema: Path, old: str, new: str, message: str) -> None:
    assert old in SCHEMA
    schema.write_text(SCHEMA.replace(old, new))
    with pytest.raises(DataError, match=message):
        load(str(write(tmp_path / "rides.csv", HEADER, *ROWS)), schema)


def many_riders(tmp_path: Path) -> Path:
    """150,000, all different."""
    riders = np.random.default_rng(0).permutation(150_000)
    return write(tmp_path / "rides.csv", HEADER, *(f"rider {i},{i % 9},{i % 77},0,5,x" for i in riders))


def test_many_string_ids_load_and_encode(tmp_path: Path, schema: Path) -> None:
    loaded = load(str(many_riders(tmp_path)), schema)
    assert isinstance(loaded, Table)
    encoding = Encoding.fit(loaded)
    encoded = encoding.encode(loaded)["rider"]
    assert np.array_equal(np.sort(encoded), np.arange(1, 150_001))
    assert np.array_equal(encoding.vocabularies["rider"][encoded - 1], loaded.columns["rider"])


@pytest.mark.soak
def test_many_string_ids_load_and_encode_quickly(tmp_path: Path, schema: Path) -> None:
    """The bound is loose, but a loop over rows would break it."""
    path = many_riders(tmp_path)
    started = time.perf_counter()
    loaded = load(str(path), schema)
    assert isinstance(loaded, Table)
    Encoding.fit(loaded).encode(loaded)
    assert time.perf_counter() - started < 5.0
