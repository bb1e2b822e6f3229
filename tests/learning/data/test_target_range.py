from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learning.data.load import load
from learning.data.target_range import with_range
from learning.errors import DataError
from learning.schema import Feature, Schema, Target

OPEN = Schema((Feature("zone", "id"),), Target("minutes"))
FILE = '[target]\nname = "minutes"\n[[features]]\nname = "zone"\nkind = "id"\n'


def test_quantiles_of_a_heavy_tail_and_the_datas_own_end_where_it_is_near() -> None:
    y = np.random.default_rng(0).lognormal(0.0, 1.5, 100_000)
    target = with_range(OPEN, y).target
    assert target.high == pytest.approx(np.quantile(y, 0.9995), rel=1e-3)
    assert target.low == pytest.approx(y.min(), rel=1e-3)
    assert (y > target.high).mean() == pytest.approx(0.0005, abs=1e-4)


def test_nothing_is_clipped_of_a_bounded_target() -> None:
    y = np.random.default_rng(0).uniform(2.0, 5.0, 20_000)
    target = with_range(OPEN, y).target
    assert (np.float32(y) >= target.low).all()
    assert (np.float32(y) <= target.high).all()


def test_an_atom_is_inside() -> None:
    y = np.concatenate([np.random.default_rng(0).normal(50, 1, 9_900), np.zeros(100)])
    assert with_range(OPEN, y).target.low == 0.0


def test_a_given_end_stays() -> None:
    half = Schema(OPEN.features, Target("minutes", low=-3.0))
    target = with_range(half, np.arange(100.0)).target
    assert (target.low, target.high) == (-3.0, 99.0)


def test_one_value_only_is_refused() -> None:
    with pytest.raises(DataError, match="nothing to predict"):
        with_range(OPEN, np.full(10, 4.0))


def test_files_without_a_range_report_what_was_clipped(tmp_path: Path) -> None:
    y = np.random.default_rng(0).lognormal(0.0, 1.5, 20_000)
    schema = tmp_path / "rides.toml"
    schema.write_text(FILE)
    table = pa.table({"zone": np.arange(len(y)) % 7, "minutes": y})
    pq.write_table(table, tmp_path / "rides.parquet")
    pa.csv.write_csv(table, tmp_path / "rides.csv")
    for name in ("rides.csv", "rides.parquet"):
        dataset = load(str(tmp_path / name), schema)
        target = dataset.schema.target
        assert target.is_bounded
        assert dataset.clipped == pytest.approx((np.float32(y) > np.float32(target.high)).mean())
        assert dataset.clipped > 0
        values = np.concatenate([batch.target for batch in dataset.batches(4096)])
        assert values.max() == np.float32(target.high)
    known = load(str(tmp_path / "rides.csv"), schema, target=Target("minutes", low=0.0, high=2.0))
    assert (known.schema.target.low, known.schema.target.high) == (0.0, 2.0)
