import numpy as np
import pytest

from ghostless.contract.errors import ConfigError
from learning.data.table import Table, concatenate
from learning.errors import DataError
from learning.schema import Feature, Schema, Target

SCHEMA = Schema(
    (
        Feature("user_id", kind="id", role="context"),
        Feature("city", kind="id", type="string"),
        Feature("age", kind="number", type="float32"),
    ),
    Target("y", unit="", low=0.0, high=1000.0),
)


def table(rows: int) -> Table:
    """Row i holds i in every column, so a batch tells which rows it has."""
    number = np.arange(rows)
    columns = {
        "user_id": number.astype(np.int64),
        "city": number.astype(np.str_),
        "age": number.astype(np.float32),
    }
    return Table(SCHEMA, columns, number.astype(np.float32))


def rows_of(batches: list[Table]) -> list[int]:
    return [int(value) for batch in batches for value in batch.target]


def test_take_moves_all_columns_together() -> None:
    taken = table(10).take(np.array([7, 2, 2]))
    assert len(taken) == taken.rows == 3
    assert taken.columns["user_id"].tolist() == [7, 2, 2]
    assert taken.columns["city"].tolist() == ["7", "2", "2"]
    assert taken.target.tolist() == [7.0, 2.0, 2.0]


def test_split_is_disjoint_complete_and_random() -> None:
    first, second = table(1000).split(0.8, seed=3)
    assert (first.rows, second.rows) == (800, 200)
    assert sorted(rows_of([first, second])) == list(range(1000))
    assert rows_of([second]) != list(range(800, 1000))
    assert rows_of([table(1000).split(0.8, seed=3)[1]]) == rows_of([second])
    assert rows_of([table(1000).split(0.8, seed=4)[1]]) != rows_of([second])


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_split_refuses_what_is_no_fraction(fraction: float) -> None:
    with pytest.raises(ConfigError, match="fraction"):
        table(10).split(fraction, seed=0)


def test_batches_in_order() -> None:
    batches = list(table(10).batches(4))
    assert [batch.rows for batch in batches] == [4, 4, 2]
    assert rows_of(batches) == list(range(10))


def test_shuffle_depends_on_seed_and_epoch_only() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return rows_of(list(table(100).batches(32, seed, epoch)))

    assert sorted(order(1, 0)) == list(range(100))
    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed, epoch in [(1, 0), (1, 1), (2, 0)]}) == 3


@pytest.mark.parametrize("rows", [1, 7, 96, 97, 98, 99])
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_disjointly_and_evenly(rows: int, world: int) -> None:
    shares = [list(table(rows).batches(16, seed=5, rank=rank, world=world)) for rank in range(world)]
    sizes = [[batch.rows for batch in share] for share in shares]
    assert all(size == sizes[0] for size in sizes)
    seen = [row for share in shares for row in rows_of(share)]
    assert len(seen) == len(set(seen)) == rows - rows % world


def test_ranks_together_see_the_batches_of_one_process() -> None:
    whole = list(table(100).batches(32, seed=5))
    shares = [list(table(100).batches(16, seed=5, rank=rank, world=2)) for rank in range(2)]
    for number, batch in enumerate(whole):
        assert rows_of([share[number] for share in shares]) == rows_of([batch])


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(ConfigError, match="rank 2 of 2"):
        list(table(10).batches(4, rank=2, world=2))


def test_fingerprint_tells_content_order_and_schema_apart() -> None:
    original = table(10)
    other_target = Target("y", unit="", low=0.0, high=999.0)
    different = [
        original.take(np.arange(9)),
        original.take(np.arange(10)[::-1]),
        Table(SCHEMA, {**original.columns, "city": original.columns["city"][::-1]}, original.target),
        Table(SCHEMA, original.columns, original.target + 1),
        Table(Schema(SCHEMA.features, other_target), original.columns, original.target),
    ]
    assert len({original.fingerprint(), *(table.fingerprint() for table in different)}) == 6
    assert original.fingerprint() == table(10).fingerprint()


def test_fingerprint_ignores_how_wide_strings_are_stored() -> None:
    original = table(10)
    wide = Table(SCHEMA, {**original.columns, "city": original.columns["city"].astype("U40")}, original.target)
    objects = Table(SCHEMA, {**original.columns, "city": original.columns["city"].astype(object)}, original.target)
    assert original.fingerprint() == wide.fingerprint() == objects.fingerprint()


def test_concatenate_keeps_order_and_long_strings() -> None:
    joined = concatenate([table(3), table(12).take(np.array([11]))])
    assert joined.columns["city"].tolist() == ["0", "1", "2", "11"]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("user_id", np.zeros(3, np.int32), "'user_id': values are int32, expected int64"),
        ("city", np.zeros(3, np.int64), "'city': values are int64, expected strings"),
        ("age", np.zeros(2, np.float32), r"3 targets, but columns of lengths \{'age': 2\}"),
    ],
)
def test_a_table_that_does_not_fit_its_schema_is_refused(name: str, values: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Table(SCHEMA, {**table(3).columns, name: values}, np.zeros(3, np.float32))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(DataError, match="age"):
        Table(SCHEMA, {"user_id": np.zeros(1, np.int64), "city": np.array(["a"])}, np.zeros(1, np.float32))
