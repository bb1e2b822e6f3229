import numpy as np
import pytest

from learning.data.encoding import FARTHEST, PIECES, SOFT_LIMIT, Encoding, position_key, z_key
from learning.data.table import Table
from learning.errors import CheckpointError, DataError
from learning.schema import Feature, Schema, Target

SCHEMA = Schema(
    (
        Feature("user_id", kind="id", role="context"),
        Feature("city", kind="id", type="string"),
        Feature("duration_ms", kind="bucket", type="float32", buckets=4),
        Feature("age", kind="number", type="float32"),
    ),
    Target("y", unit="", low=0.0, high=3.0),
)


def table(users: list[int], cities: list[str], durations: list[float], ages: list[float]) -> Table:
    columns = {
        "user_id": np.array(users, np.int64),
        "city": np.array(cities),
        "duration_ms": np.array(durations, np.float32),
        "age": np.array(ages, np.float32),
    }
    return Table(SCHEMA, columns, np.linspace(3.0, 0.0, len(users), dtype=np.float32))


TRAINING = table(
    users=[9, -4, 9, 7, 9, 7, -4, 9],
    cities=["Ulm", "Bonn", "Ulm", "Ulm", "Bonn", "Ärö", "Ulm", "Ulm"],
    durations=[8, 7, 6, 5, 4, 3, 2, 1],
    ages=[1, 1, 1, 1, 3, 3, 3, 3],
)


def test_hand_worked_statistics() -> None:
    encoding = Encoding.fit(TRAINING)
    assert encoding.vocabularies["user_id"].tolist() == [-4, 7, 9]
    assert encoding.counts["user_id"].tolist() == [2, 2, 4]
    assert encoding.vocabularies["city"].tolist() == ["Bonn", "Ulm", "Ärö"]
    assert encoding.counts["city"].tolist() == [2, 5, 1]
    # Quartiles of 1..8 sit at positions 1.75, 3.5 and 5.25 (from 0); the values above them are 3, 5 and 7.
    assert encoding.edges["duration_ms"].tolist() == [3.0, 5.0, 7.0]
    assert encoding.edges["age"].tolist() == [3.0]
    assert encoding.knots["age"].tolist() == [1.0, 3.0]
    assert encoding.centres["age"] == 2.0
    assert encoding.spreads["age"] == pytest.approx(2.0 / 1.349)
    assert encoding.knots["duration_ms"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert encoding.target_sample.tolist() == sorted(TRAINING.target.tolist())
    assert [encoding.cardinality(name) for name in ("user_id", "city", "duration_ms")] == [4, 4, 4]


def test_hand_worked_encoding() -> None:
    fresh = table(
        users=[-4, 8, 9, 10**12],
        cities=["Ulm", "Ulmen", "", "Ärö"],
        durations=[-5, 3, 6.9, 1e9],
        ages=[2, 3, 0, 2.5],
    )
    encoded = Encoding.fit(TRAINING).encode(fresh)
    assert encoded["user_id"].tolist() == [1, 0, 3, 0]
    assert encoded["city"].tolist() == [
        2,
        0,
        0,
        3,
    ]  # Ulmen is longer than any known city, and starts like one
    assert encoded["duration_ms"].tolist() == [0, 1, 2, 3]
    assert encoded[position_key("duration_ms")].tolist() == pytest.approx([0.0, 2.0, 5.9, 7.0])
    assert encoded["age"].tolist() == [0, 1, 0, 0]
    assert encoded[position_key("age")].tolist() == [0.5, 1.0, 0.0, 0.75]
    spreads = np.array([0.0, 1.0, -2.0, 0.5]) * 1.349 / 2.0
    np.testing.assert_allclose(encoded[z_key("age")], SOFT_LIMIT * np.arcsinh(spreads / SOFT_LIMIT), rtol=1e-6)
    assert {name: values.dtype.name for name, values in encoded.items() if values.dtype != np.int64} == {
        name: "float32" for key in ("duration_ms", "age") for name in (z_key(key), position_key(key))
    }


@pytest.mark.parametrize("factor", [3600.0, 1 / 60, 1e-6])
@pytest.mark.parametrize("kind", ["bucket", "number"])
def test_a_numbers_unit_changes_nothing(kind: str, factor: float) -> None:
    schema = Schema((Feature("d", kind=kind, type="float32"),), SCHEMA.target)  # type: ignore[arg-type]
    values = np.exp(np.random.default_rng(0).normal(3.0, 1.5, 5000)).round(1)
    encoded = []
    for scaled in (values, values * factor):
        data = Table(schema, {"d": scaled.astype(np.float32)}, np.zeros(5000, np.float32))
        encoded.append(Encoding.fit(data).encode(data))
    assert np.array_equal(encoded[0]["d"], encoded[1]["d"])
    for key in (z_key("d"), position_key("d")):
        np.testing.assert_allclose(encoded[0][key], encoded[1][key], atol=2e-3)


def test_no_outlier_moves_a_number() -> None:
    schema = Schema((Feature("d", kind="number", type="float32"),), SCHEMA.target)
    values = np.random.default_rng(0).normal(size=2001).astype(np.float32)
    tables = [
        Table(schema, {"d": v}, np.zeros(len(v), np.float32)) for v in (values, np.append(values, np.float32(1e30)))
    ]
    plain, moved = (Encoding.fit(table).encode(tables[0])[z_key("d")] for table in tables)
    np.testing.assert_allclose(moved, plain, atol=0.01)
    far = Encoding.fit(tables[0]).encode(tables[1])
    assert far[z_key("d")][-1] == pytest.approx(SOFT_LIMIT * np.arcsinh(FARTHEST / SOFT_LIMIT))
    assert far[position_key("d")][-1] == PIECES


def test_where_most_values_tie_the_standard_deviation_scales() -> None:
    schema = Schema((Feature("d", kind="number", type="float32"),), SCHEMA.target)
    values = np.repeat(np.array([0, 10], np.float32), [90, 10])
    encoding = Encoding.fit(Table(schema, {"d": values}, np.zeros(100, np.float32)))
    assert encoding.centres["d"] == 0.0
    assert encoding.spreads["d"] == pytest.approx(3.0)
    assert encoding.pieces("d") == 1


def test_every_training_bucket_is_used_even_with_ties() -> None:
    schema = Schema((Feature("d", kind="bucket", type="float32", buckets=100),), SCHEMA.target)
    values = np.repeat(np.array([5, 6, 7, 90], np.float32), [700, 150, 100, 50])
    tied = Table(schema, {"d": values}, np.zeros(1000, np.float32))
    encoding = Encoding.fit(tied)
    assert encoding.edges["d"].tolist() == [6.0, 7.0, 90.0]
    assert np.unique(encoding.encode(tied)["d"]).tolist() == [0, 1, 2, 3]


def test_distinct_values_fill_buckets_evenly() -> None:
    schema = Schema((Feature("d", kind="bucket", type="float32", buckets=100),), SCHEMA.target)
    values = np.random.default_rng(0).permutation(10_000).astype(np.float32)
    shuffled = Table(schema, {"d": values}, np.zeros(10_000, np.float32))
    sizes = np.bincount(Encoding.fit(shuffled).encode(shuffled)["d"])
    assert len(sizes) == 100
    assert sizes.min() >= 99
    assert sizes.max() <= 101


def test_constants_encode_to_something_harmless() -> None:
    constant = table([1, 1], ["a", "a"], [4, 4], [7, 7])
    encoding = Encoding.fit(constant)
    encoded = encoding.encode(constant)
    assert encoding.cardinality("duration_ms") == 1
    assert encoded["duration_ms"].tolist() == [0, 0]
    assert encoding.pieces("age") == 0
    assert encoded[z_key("age")].tolist() == encoded[position_key("age")].tolist() == [0.0, 0.0]


def test_number_keeps_its_digits_around_a_large_mean() -> None:
    ages = (np.arange(200_000) % 3 + 1e7).astype(np.float32)
    schema = Schema((Feature("age", kind="number", type="float32"),), SCHEMA.target)
    data = Table(schema, {"age": ages}, np.zeros(len(ages), np.float32))
    encoding = Encoding.fit(data)
    assert encoding.centres["age"] == 10_000_001.0
    assert encoding.encode(data)[position_key("age")][:3].tolist() == [0.0, 1.0, 2.0]


def test_a_bounded_sample_gives_nearly_the_same_edges() -> None:
    schema = Schema((Feature("d", kind="bucket", type="float32", buckets=10),), SCHEMA.target)
    values = np.random.default_rng(1).random(300_000).astype(np.float32)
    data = Table(schema, {"d": np.sort(values)}, np.sort(values))  # sorted: a biased sample would show
    encoding = Encoding.fit(data, max_quantile_sample=20_000)
    assert np.abs(encoding.edges["d"] - np.arange(0.1, 0.95, 0.1)).max() < 0.02
    assert len(encoding.target_sample) == 100_000
    assert abs(encoding.target_sample.mean() - 0.5) < 0.005
    assert (np.diff(encoding.target_sample) >= 0).all()


def test_a_vocabulary_of_many_batches_counts_every_row() -> None:
    schema = Schema((Feature("user_id", kind="id"),), SCHEMA.target)
    users = np.random.default_rng(2).integers(0, 3_000_000, 2_500_000)
    encoding = Encoding.fit(Table(schema, {"user_id": users}, np.zeros(len(users), np.float32)))
    known, counts = np.unique(users, return_counts=True)
    assert np.array_equal(encoding.vocabularies["user_id"], known)
    assert np.array_equal(encoding.counts["user_id"], counts)


def test_state_round_trip() -> None:
    encoding = Encoding.fit(TRAINING)
    state = encoding.state()
    assert all(isinstance(value, np.ndarray | list | float | bool) for value in state.values())
    back = Encoding.from_state({name: _as_list(value) for name, value in state.items()}, SCHEMA)
    for name, values in encoding.encode(TRAINING).items():
        assert np.array_equal(back.encode(TRAINING)[name], values)
    assert np.array_equal(back.counts["user_id"], encoding.counts["user_id"])
    assert np.array_equal(back.target_sample, encoding.target_sample)


def _as_list(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_a_state_of_another_schema_is_refused() -> None:
    state = Encoding.fit(TRAINING).state()
    del state["edges/duration_ms"]
    with pytest.raises(CheckpointError, match="edges/duration_ms"):
        Encoding.from_state(state, SCHEMA)


def test_no_rows_cannot_be_fitted() -> None:
    with pytest.raises(DataError, match="no rows"):
        Encoding.fit(TRAINING.take(slice(0, 0)))
