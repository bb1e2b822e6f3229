"""Conformal calibration at export: the constants that stand in for the returned levels, from the rows a run kept.

Scores are computed against the CDF at the graph's own knots, so the promise is made for what is served, whatever
`--knots` and `--edges` were chosen. Docs: docs/export.md; the theory: learning/conformal.py.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from export import reference, rows
from export.builder import Array
from export.graph import Networks
from export.options import Layout
from ghostless.contract import metadata
from learning import conformal
from learning.data.table import Table

# Rows that are answered at once.
_ROWS = 2048
# How far, in share of the calibration rows, the graph's coverage may fall short by rounding alone.
SHORTFALL = {"fp32": 1e-3, "fp16": 1e-2}


def calibrate(networks: Networks, layout: Layout) -> Layout:
    """The layout with calibrated levels, where the run kept rows that none of the networks was trained on."""
    kept = networks.held_out
    if kept is None or metadata.QUANTILES not in layout.outputs:
        return layout
    plain = replace(layout, outputs=(metadata.CDF,))
    cdf = [reference.answer(networks, part.columns, plain)[metadata.CDF] for part in kept.batches(_ROWS)]
    return replace(layout, conformal=conformal.fit(np.concatenate(cdf), layout.knots, kept.target))


def shortfalls(run: Callable[[dict[str, Array]], dict[str, Array]], kept: Table, layout: Layout) -> dict[float, float]:
    """By level, how much less than it promises the graph's quantile covers of the rows it was calibrated on."""
    parts = [run(rows.fed(dict(part.columns)))[metadata.QUANTILES] for part in kept.batches(_ROWS)]
    quantiles, y = np.concatenate(parts), kept.target[:, None]
    below, inside = (y < quantiles).mean(0), (y <= quantiles).mean(0)
    return {
        level: float(below[place] - level if level < 0.5 else level - inside[place])
        for place, level in enumerate(layout.levels.tolist())
    }


def described(layout: Layout) -> dict[str, Any]:
    """For the metadata; empty without calibration."""
    if layout.conformal is None:
        return {}
    return {
        "method": "split-conformal",
        "rows": layout.conformal.rows,
        "levels": [round(level, 6) for level in layout.asked.tolist()],
    }
