"""LightGBM quantile models: ahead of the marginal, calibrated enough to be a rival, and no target leaks."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.truth.judge import pinball_crps
from benchmarks.truth.targets import known_targets
from learning.data.table import Table
from learning.errors import DataError
from learning.schema import Feature, Schema, Target
from research.baselines.boosted_quantiles import LEVELS, BoostedQuantiles, BoostingConfig, TreeEncoding

BRIEF = BoostingConfig(trees=40, leaf_rows=20)


def test_ahead_of_the_marginal_on_every_kind_of_feature() -> None:
    target = known_targets()[1]
    parts = target.parts(fitting=6_000, judged=4_000)
    model = BoostedQuantiles.fit(parts.fitting, BRIEF)
    quantiles, mean = model.predict(parts.judged)
    y = parts.judged.target.astype(np.float64)
    marginal = np.tile(np.quantile(parts.fitting.target, LEVELS), (len(y), 1))
    truth = pinball_crps(target.truth(parts.judged).quantiles(LEVELS), y)
    ours, theirs = pinball_crps(quantiles, y), pinball_crps(marginal, y)
    assert truth < ours < 0.9 * theirs
    assert np.mean((mean - y) ** 2) < 0.85 * np.var(y)
    assert np.all(np.diff(quantiles, axis=1) >= 0)
    assert quantiles.min() >= target.low
    assert quantiles.max() <= target.high
    assert len(model.trees) == len(LEVELS) + 1


def _pure_noise(rows: int) -> Table:
    """Every row its own id: nothing can be learnt, and an encoding that sees its own row learns it by heart."""
    random = np.random.default_rng(0)
    schema = Schema((Feature("user", kind="id", type="int64"),), Target("y", "units", -5.0, 5.0))
    return Table(schema, {"user": np.arange(rows) // 2}, random.normal(size=rows).astype(np.float32))


def test_the_encoding_of_a_row_does_not_contain_its_target() -> None:
    table = _pure_noise(4_000)
    encoding, matrix = TreeEncoding.fit(table, BRIEF)
    leaking = np.corrcoef(encoding.encode(table)[:, 0], table.target)[0, 1]
    out_of_fold = np.corrcoef(matrix[:, 0], table.target)[0, 1]
    assert leaking > 0.5
    assert abs(out_of_fold) < 0.05


def test_unknown_ids_get_the_overall_mean() -> None:
    table = _pure_noise(1_000)
    encoding, _ = TreeEncoding.fit(table, BRIEF)
    strange = Table(table.schema, {"user": np.array([10**9])}, np.zeros(1, np.float32))
    encoded = encoding.encode(strange)[0]
    assert encoded[0] == pytest.approx(table.target.astype(np.float64).mean())
    assert encoded[-1] == 0.0


def test_same_seed_same_model_and_too_few_rows_are_an_error() -> None:
    table = known_targets()[0].parts(fitting=800, judged=10)
    config = replace(BRIEF, levels=(0.5,), trees=5)
    first, second = (BoostedQuantiles.fit(table.fitting, config).predict(table.judged)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    with pytest.raises(DataError, match="too few"):
        BoostedQuantiles.fit(table.fitting.take(slice(0, 3)), config)
