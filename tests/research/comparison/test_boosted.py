"""LightGBM's line of the table: the columns of every method, from the cache the second time."""

from pathlib import Path

import numpy as np
import pytest

from learning.data.synthetic import SyntheticVideos
from research.baselines.boosted_quantiles import LEVELS, BoostedQuantiles, BoostingConfig
from research.comparison.boosted import boosted_row, joined_cdf
from research.comparison.source import Splits

BRIEF = BoostingConfig(trees=10, leaf_rows=20)


def test_a_line_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = SyntheticVideos(seed=0, users=60, items=40).sample(2_000, seed=0)
    rest, test = table.split(0.7, 0)
    parts = Splits(*rest.split(0.9, 1), test, table.fingerprint())
    assert boosted_row(parts, tmp_path, 1, cached_only=True, config=BRIEF).runs == ()
    result = boosted_row(parts, tmp_path, 1, config=BRIEF)
    assert {"nll", "crps", "ece", "rmse", "coverage_90", "train_cpu_seconds", "answer_ms"} <= result.runs[0].keys()
    frequencies = np.histogram(test.target, bins=10, range=(0, 3))[0] / test.rows
    marginal_nll = -np.sum(frequencies * np.log(np.maximum(frequencies, 1e-12)))
    assert 0.5 < result.mean("nll") < marginal_nll * 1.1
    assert 0.0 < result.mean("aleatoric") < 1.5**2
    assert result.mean("rmse") < np.std(test.target)
    monkeypatch.setattr(BoostedQuantiles, "fit", lambda *_: pytest.fail("fitted again"))
    assert boosted_row(parts, tmp_path, 1, config=BRIEF) == result


def test_quantiles_of_a_uniform_are_its_cdf() -> None:
    grid = np.linspace(0.0, 3.0, 31)
    np.testing.assert_allclose(joined_cdf(3.0 * LEVELS[None, :], grid)[0], grid / 3.0, atol=1e-12)
