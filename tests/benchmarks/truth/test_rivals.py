"""The rival is fitted once, and scored by the formula that scores the product."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.truth.judge import LEVELS, pinball_crps
from benchmarks.truth.rivals import measure_rival
from benchmarks.truth.store import Store
from benchmarks.truth.targets import known_targets
from research.baselines.boosted_quantiles import BoostedQuantiles, BoostingConfig


def test_fitted_once_and_scored_on_the_judged_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = known_targets()[0].parts(fitting=1_500, judged=500)
    config = BoostingConfig(trees=5, leaf_rows=20)
    first = measure_rival(Store(tmp_path), parts, Console(quiet=True), config)
    monkeypatch.setattr(BoostedQuantiles, "fit", lambda *_: pytest.fail("fitted again"))
    again = measure_rival(Store(tmp_path), parts, Console(quiet=True), config)
    assert again == first
    y = parts.judged.target.astype(np.float64)
    marginal = pinball_crps(np.tile(np.quantile(parts.fitting.target, LEVELS), (len(y), 1)), y)
    assert first.crps_levels < marginal
    assert 0.3 < first.coverage[0.5] < first.coverage[0.8] < first.coverage[0.9] <= 1.0
