"""Scores of outcomes on atoms: by the randomised PIT, so that a right model is not said to cover too much."""

import numpy as np

from ghostless.contract import metadata
from serving.outcomes.calibration import score
from serving.outcomes.store import Matched
from serving.outcomes.stored_distribution import StoredDistribution, central_intervals

LEVELS = (0.05, 0.5, 0.95)
# 30% at 0, half of the rest on (0, 1), and the other half at 1.
KNOTS = np.array([0.0, 0.0, 1.0, 1.0])
HEIGHTS = np.array([0.0, 0.3, 0.65, 1.0], np.float32)
ROWS = 20_000


def stored(is_calibrated: bool = True) -> StoredDistribution:
    return StoredDistribution(
        labels=("demo", "1", "cr"),
        outputs={metadata.CDF: 4, metadata.QUANTILES: 3},
        source=metadata.CDF,
        low=0.0,
        high=1.0,
        knots=KNOTS,
        levels=LEVELS,
        intervals=central_intervals(LEVELS),
        is_calibrated=is_calibrated,
    )


def matched(is_calibrated: bool = True) -> Matched:
    outputs = {
        metadata.CDF: np.repeat(HEIGHTS[None], ROWS, 0),
        metadata.QUANTILES: np.repeat(np.array([[0.0, 4.0 / 7.0, 1.0]], np.float32), ROWS, 0),
    }
    return Matched(stored(is_calibrated), np.arange(ROWS), outputs, np.zeros(ROWS))


def drawn() -> np.ndarray:
    """Outcomes of that very distribution."""
    random = np.random.default_rng(0)
    kind, inside = random.random(ROWS), random.random(ROWS)
    return np.where(kind < 0.3, 0.0, np.where(kind < 0.65, inside, 1.0)).astype(np.float32)


def test_the_pit_of_a_right_model_is_uniform() -> None:
    scored = score(matched(), drawn())
    counts = np.histogram(scored.pit, 20, (0.0, 1.0))[0] / ROWS
    assert np.abs(counts - 0.05).max() < 0.01


def test_a_right_model_covers_its_levels() -> None:
    scored = score(matched(), drawn())
    assert abs(scored.covered[0] / ROWS - 0.9) < 0.01
    assert np.abs(scored.below / ROWS - np.array(LEVELS)).max() < 0.01


def test_quantiles_that_alone_are_calibrated_are_compared_themselves() -> None:
    """Of format 1. Closed intervals with ends on atoms cover all rows."""
    scored = score(matched(is_calibrated=False), drawn())
    assert scored.covered[0] == ROWS


def test_the_same_outcomes_give_the_same_figures() -> None:
    np.testing.assert_array_equal(score(matched(), drawn()).pit, score(matched(), drawn()).pit)
