"""Calibration at export: fits the map of averaged passes, and checks that the served CDF is calibrated.

The temperature and map of a single network come from its checkpoint, the map of a pool from its own file
(ghostless.heads.calibration).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from export import reference, rows
from export.builder import Array
from export.checks import RunGraph
from export.graph import Networks
from export.options import Layout
from ghostless.contract import metadata, scores
from ghostless.heads.calibration import IDENTITY, fit_map, randomised
from ghostless.heads.predictive import read_heights
from learning.data.table import Table, sample

# Rows per prediction batch.
_ROWS = 2048
# A pass of MC-dropout is a whole network, so its average is calibrated on at most this many rows.
PASSES_ROWS = 4096


@torch.no_grad()
def calibrate(networks: Networks, layout: Layout) -> Layout:
    """The layout with a map for MC-dropout's average, fitted to rows that its network was not trained on.

    Each member of an ensemble has its own split, so one member's held-out rows are another's training rows: their
    average has no map.
    """
    kept = networks.held_out
    if kept is None or not kept.rows or networks.members == 1 or networks.weights:
        return layout
    knots = torch.from_numpy(layout.knots)
    before, after = [], []
    for part in sample(kept, PASSES_ROWS, 0).batches(_ROWS):
        members = reference.member_predictives(networks, [reference.encode(networks.first, part.columns)])
        heights = torch.stack([read_heights(predictive, knots) for predictive, _ in members]).mean(0)
        low, high = scores.pit(heights.numpy(), layout.knots, _clipped(part, layout))
        before.append(low)
        after.append(high)
    fitted = fit_map(np.concatenate(before), np.concatenate(after))
    return layout if fitted == IDENTITY else replace(layout, map_heights=fitted)


def pit_distance(run: RunGraph, kept: Table, layout: Layout) -> float:
    """Kolmogorov-Smirnov distance from uniform of the randomised PIT of the served CDF, on the calibration rows."""
    sides = []
    for part in kept.batches(_ROWS):
        cdf = run(rows.fed(dict(part.columns)))[metadata.CDF].astype(np.float64)
        sides.append(scores.pit(cdf, layout.knots, _clipped(part, layout)))
    before, after = (np.concatenate(side) for side in zip(*sides, strict=True))
    values = np.sort(randomised(before, after))
    grid = np.arange(len(values) + 1) / len(values)
    return float(max(np.abs(values - grid[1:]).max(), np.abs(values - grid[:-1]).max()))


def described(networks: Networks, layout: Layout) -> dict[str, Any]:
    """For the metadata: temperature, heights of the map and the number of rows they were fitted to; empty if there is
    no calibration."""
    kept = networks.held_out
    if kept is None or not kept.rows:
        return {}
    temperature = networks.first.model.head.calibration.temperature
    return {
        "temperature": round(temperature, 6),
        "heights": [round(height, 7) for height in layout.map_heights or IDENTITY],
        "rows": kept.rows if networks.members == 1 or networks.weights else min(kept.rows, PASSES_ROWS),
    }


def _clipped(part: Table, layout: Layout) -> Array:
    clipped: Array = np.clip(part.target.astype(np.float64), layout.knots[0], layout.knots[-1])
    return clipped
