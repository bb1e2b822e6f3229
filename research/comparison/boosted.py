"""LightGBM quantile models as a row of the comparison: the same split and the same figures, without a network.

Its 19 quantiles are joined by straight lines and to the ends of the target's range, like those of QR methods in the
`paper` reconstruction. Nothing is tuned; validation rows are added to the training rows, a tenth of which is used for
early stopping.
"""

import hashlib
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learning import metrics
from learning.data.table import Dataset, Table, concatenate
from learning.json_files import write_atomically
from research.baselines.boosted_quantiles import LEVELS, BoostedQuantiles, BoostingConfig
from research.comparison.methods import BOOSTED
from research.comparison.source import Splits
from research.comparison.table import Row, Tuned

Floats = NDArray[np.float64]

# Rows of a ranking request, and the number of requests over which the cost of inference is measured.
REQUEST_ROWS, REQUESTS = 256, 20


# Points of the grid on which the CDF of 19 quantiles is evaluated; they include the edges of the ten equal buckets.
GRID_POINTS = 301


def boosted_row(
    parts: Splits, root: Path, seeds: int, cached_only: bool = False, config: BoostingConfig | None = None
) -> Row:
    """One row of the table, with one fit per seed. Fits are cached in `root`; with `cached_only`, nothing else is
    fitted."""
    config = config or BoostingConfig()
    found = (boosted_figures(parts, root, replace(config, seed=seed), cached_only) for seed in range(seeds))
    runs = tuple(figures for figures in found if figures is not None)
    return Row(BOOSTED.label, runs, BOOSTED, Tuned({}, ()))


def boosted_figures(parts: Splits, root: Path, config: BoostingConfig, cached_only: bool) -> dict[str, Any] | None:
    """The columns that every method of the table has."""
    content = json.dumps([parts.fingerprint, asdict(config)], sort_keys=True)
    file = root / "boosted" / f"{hashlib.sha256(content.encode()).hexdigest()[:20]}.json"
    if not file.exists():
        if cached_only:
            return None
        write_atomically(file, _measure(parts, config))
    figures: dict[str, Any] = json.loads(file.read_text())
    return figures


def _measure(parts: Splits, config: BoostingConfig) -> dict[str, Any]:
    fitting, test = _in_memory(parts.train, parts.validation), _in_memory(parts.test)
    started = time.process_time()
    model = BoostedQuantiles.fit(fitting, config)
    spent = time.process_time() - started
    quantiles, mean = model.predict(test)
    return {
        **_quality(quantiles, mean, test),
        # It is one model of the conditional distribution without a posterior, so all of its spread is noise.
        "epistemic": 0.0,
        "aleatoric": float(_variance(quantiles, test).mean()),
        "train_cpu_seconds": spent,
        "answer_ms": _answer_ms(model, test),
    }


def _quality(quantiles: Floats, mean: Floats, test: Table) -> dict[str, float]:
    target, y = test.schema.target, test.target
    grid = np.linspace(target.low, target.high, GRID_POINTS).astype(np.float32).astype(np.float64)
    edges = grid[:: (GRID_POINTS - 1) // 10]
    cdf = joined_cdf(quantiles, grid)
    masses = np.diff(cdf[:, :: (GRID_POINTS - 1) // 10], axis=1)
    inside = metrics.coverage(quantiles, LEVELS, y).intervals
    return {
        "rows": len(y),
        "nll": metrics.discretised_nll(masses, y, edges),
        "ece": metrics.expected_calibration_error(masses, y, edges),
        "crps": float(metrics.crps(cdf, grid, y).mean()),
        "rmse": metrics.rmse(mean, y),
        **{f"coverage_{round(100 * level)}": inside[level] for level in (0.5, 0.8, 0.9)},
    }


def joined_cdf(quantiles: Floats, grid: Floats) -> Floats:
    """Quantiles [n, 19] inside the grid's range -> the CDF at grid [g], [n, g], linear between them and to the ends."""
    levels = np.concatenate([[0.0], LEVELS, [1.0]])
    cdf = np.empty((len(quantiles), len(grid)))
    for row, places in enumerate(quantiles):
        cdf[row] = np.interp(grid, np.concatenate([grid[:1], places, grid[-1:]]), levels)
    cdf[:, 0], cdf[:, -1] = 0.0, 1.0
    return cdf


def _variance(quantiles: Floats, test: Table) -> Floats:
    """Variance [n] of the distribution that is linear between quantiles [n, 19] and the ends of the range."""
    target = test.schema.target
    ends = (np.full((len(quantiles), 1), end) for end in (target.low, target.high))
    low, high = ends
    places = np.concatenate([low, quantiles, high], axis=1)
    left, right = places[:, :-1], places[:, 1:]
    mean = np.mean(0.5 * (left + right), axis=1)
    second = np.mean((left * left + left * right + right * right) / 3.0, axis=1)
    variance: Floats = second - mean * mean
    return variance


def _answer_ms(model: BoostedQuantiles, test: Table) -> float:
    """CPU time of one thread for one request, encoding included."""
    requests = [test.take(slice(start, start + REQUEST_ROWS)) for start in range(0, test.rows, REQUEST_ROWS)]
    requests = requests[:REQUESTS]
    model.predict(requests[0])
    started = time.process_time()
    for request in requests:
        model.predict(request)
    return 1e3 * (time.process_time() - started) / len(requests)


def _in_memory(*datasets: Dataset) -> Table:
    return concatenate([batch for dataset in datasets for batch in dataset.batches(max(dataset.rows, 1))])
