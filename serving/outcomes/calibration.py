"""Calibration in production: scores predictions against reported outcomes and updates the outcome metrics."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ghostless.contract.scores import Floats, bucket_nll, crps, pit
from serving.outcomes.store import Matched
from serving.outcomes.stored_distribution import StoredDistribution, level_name
from serving.telemetry.metrics import OutcomeMetrics


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of n outcomes of one model version, [n] each, with the clipped outcomes; and the number of outcomes at or
    below each level's quantile [levels] and inside each central interval [intervals]. With atoms, closed intervals
    cover more than their level even for a perfect model, so these two use the randomised PIT."""

    lags: Floats
    clipped: Floats
    pit: Floats
    nll: Floats
    crps: Floats
    below: npt.NDArray[np.int64]
    covered: npt.NDArray[np.int64]


def score(matched: Matched, actuals: npt.NDArray[np.float32]) -> Scored:
    """Score the outcomes `actuals` [n] of the matched rows, clipped to [low, high] as in training."""
    stored = matched.stored
    clipped = np.clip(actuals, np.float32(stored.low), np.float32(stored.high))
    y = np.clip(clipped.astype(np.float64), stored.low, stored.high)
    heights, knots = stored.distribution(matched.outputs)
    before, at = pit(heights, knots, y)
    # At an atom the PIT is drawn between its two sides. The outcomes seed the draw, so they always give the same
    # figures.
    seed = zlib.crc32(matched.lags.tobytes() + clipped.tobytes())
    uniform = before + np.random.default_rng(seed).random(len(y)) * (at - before)
    if stored.is_calibrated:
        levels = np.asarray(stored.levels)
        at_most = uniform[:, None] <= levels
        inside = [at_most[:, i.upper] & (uniform > levels[i.lower]) for i in stored.intervals]
    else:
        quantiles = stored.quantiles(matched.outputs)
        at_most = clipped[:, None] <= quantiles
        inside = [at_most[:, i.upper] & (clipped >= quantiles[:, i.lower]) for i in stored.intervals]
    return Scored(
        lags=np.maximum(matched.lags, 0.0),
        clipped=y,
        pit=uniform,
        nll=bucket_nll(heights, knots, y, stored.low, stored.high),
        crps=crps(heights, knots, y),
        below=at_most.sum(axis=0),
        covered=np.array([np.count_nonzero(rows) for rows in inside], np.int64),
    )


def observe(metrics: OutcomeMetrics, stored: StoredDistribution, parts: Sequence[Scored]) -> None:
    """Add the scores of one model version to the metrics."""
    labels = stored.labels
    for histogram, values in (
        (metrics.lag_seconds, [part.lags for part in parts]),
        (metrics.pit, [part.pit for part in parts]),
        (metrics.nll, [part.nll for part in parts]),
        (metrics.crps, [part.crps for part in parts]),
    ):
        histogram.labels(*labels).observe(np.concatenate(values))
    rows = sum(len(part.pit) for part in parts)
    below = np.sum([part.below for part in parts], axis=0)
    covered = np.sum([part.covered for part in parts], axis=0)
    for level, count in zip(stored.levels, below.tolist(), strict=True):
        metrics.below_rows.labels(level_name(level), *labels).inc(count)
    for interval, count in zip(stored.intervals, covered.tolist(), strict=True):
        metrics.interval_rows.labels(level_name(interval.level), *labels).inc(rows)
        metrics.covered_rows.labels(level_name(interval.level), *labels).inc(count)
