"""Synthetic targets: what is drawn follows the distribution that is called the truth, and has the shares it claims."""

import numpy as np
import pytest

from benchmarks.truth.judge import judge
from benchmarks.truth.targets import KnownTarget, known_targets

TARGETS = {target.name: target for target in known_targets()}
ROWS = 12_000


@pytest.mark.parametrize("target", known_targets(), ids=lambda target: target.name)
def test_draws_follow_the_truth(target: KnownTarget) -> None:
    rows = target.parts(seed=3, fitting=10, judged=ROWS).judged
    truth = target.truth(rows)
    judged = judge(truth, target.low, target.high)
    assert judged.coverage_error() < 1.5
    assert judged.ks < 0.0163  # 1% of calibrated forecasts exceed 1.63 / sqrt(12,000) = 0.0149
    assert np.corrcoef(truth.mean, rows.target)[0, 1] > 0.5  # there is something to learn


def test_shares_of_the_atoms() -> None:
    capped = TARGETS["40% on the upper end"].parts(fitting=ROWS, judged=10).fitting.target
    assert np.mean(capped == 10.0) == pytest.approx(0.40, abs=0.03)
    mixed = TARGETS["30% on the lower end and 5% in the middle"].parts(fitting=ROWS, judged=10).fitting.target
    assert np.mean(mixed == 0.0) == pytest.approx(0.30, abs=0.03)
    assert np.mean(mixed == 1.0) == pytest.approx(0.05, abs=0.01)


def test_the_range_is_far_too_wide_and_integers_are_integers() -> None:
    wide = TARGETS["lognormal with a far too wide range"].parts(fitting=ROWS, judged=10).fitting
    assert np.quantile(wide.target, 0.999) < 0.01 * wide.schema.target.high
    whole = TARGETS["integers 0 to 100"].parts(fitting=ROWS, judged=10).fitting.target
    assert np.all(whole == np.round(whole))
    assert len(np.unique(whole)) > 90


@pytest.mark.parametrize("target", known_targets(), ids=lambda target: target.name)
def test_the_truth_is_a_distribution_at_extreme_locations(target: KnownTarget) -> None:
    minus, plus = target.heights(target.points, np.array([-8.0, 0.0, 8.0]))
    heights = np.stack([minus, plus], axis=2).reshape(3, -1)
    assert np.all(np.diff(heights, axis=1) >= -1e-12)
    assert heights.min() >= 0.0
    np.testing.assert_allclose(heights[:, -1], 1.0)


def test_fitting_and_judged_rows_are_drawn_apart_and_repeatably() -> None:
    target = known_targets()[0]
    parts = target.parts(fitting=100, judged=100)
    assert parts.fingerprint == target.parts(fitting=100, judged=100).fingerprint
    assert parts.fitting.fingerprint() != parts.judged.fingerprint()
