"""The target's unit must not matter: the same rows in seconds, in sixtieths and unchanged."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.truth.parts import Parts
from benchmarks.truth.product import Product
from ghostless.heads.config import HeadName
from learning.data.table import Table
from learning.schema import Schema
from loadtest.figures import Figures

FACTORS = {"times 3,600": 3600.0, "divided by 60": 1.0 / 60.0}


def measure_units(product: Product, figures: Figures, parts: Parts, heads: Sequence[HeadName]) -> None:
    """Every score in the changed unit, scaled back, compared with the score in the original unit."""
    for head in heads:
        run = product.run(parts, head)
        base = run.judgement
        for name, factor in FACTORS.items():
            other = product.run(in_unit(parts, name, factor), head)
            scaled = other.judgement
            label = f"{parts.name} {head.upper()}, target {name}:"
            figures.add(f"{label} NLL, percent off", _percent(scaled.nll, base.nll), "<= 0.5")
            figures.add(f"{label} CRPS, percent off", _percent(scaled.crps / factor, base.crps), "<= 0.5")
            figures.add(f"{label} RMSE, percent off", _percent(scaled.rmse / factor, base.rmse), "<= 0.5")
            apart = max(abs(scaled.coverage[level] - share) for level, share in base.coverage.items())
            figures.add(f"{label} coverage, points off", 100 * apart, "<= 0.3")
            epistemic = other.served.epistemic.mean() / factor**2, run.served.epistemic.mean()
            figures.add(f"{label} mean epistemic variance, percent off", _percent(*map(float, epistemic)), "<= 0.5")


def in_unit(parts: Parts, name: str, factor: float) -> Parts:
    """The same rows with target and range in another unit."""
    return Parts(f"{parts.name} {name}", _scaled(parts.fitting, factor), _scaled(parts.judged, factor))


def some_rows(parts: Parts, rows: int) -> Parts:
    """About `rows` random rows for fitting and a quarter of that for evaluation."""
    fitting, judged = (
        table if table.rows <= most else table.split(most / table.rows, 0)[0]
        for table, most in ((parts.fitting, rows), (parts.judged, rows // 4))
    )
    return Parts(f"{parts.name} {rows:,} rows", fitting, judged)


def _scaled(table: Table, factor: float) -> Table:
    target = table.schema.target
    # The ends are rounded like the rows, so that an atom at an end stays there.
    low, high = (float(np.float32(np.float64(end) * factor)) for end in (target.low, target.high))
    schema = Schema(table.schema.features, replace(target, low=low, high=high))
    values = np.clip((table.target.astype(np.float64) * factor).astype(np.float32), np.float32(low), np.float32(high))
    return Table(schema, table.columns, values)


def _percent(value: float, reference: float) -> float:
    return 100 * abs(value / reference - 1.0)
