"""Calibrates a run's predictions on rows that training never saw (theory: ghostless.heads.calibration)."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ghostless.contract import scores
from ghostless.heads.calibration import ENOUGH_ROWS, Calibration, fit_map
from ghostless.heads.predictive import read_heights
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.model import Model, Network, Predict

_ROWS = 2048


@torch.no_grad()
def calibrate(network: Network, encoding: Encoding, rows: Table | None) -> Calibration | None:
    """Fit and store the calibration of a served head; None if there are no rows, or for a baseline, which has no
    calibration."""
    if rows is None or not rows.rows or not isinstance(network, Model):
        return None
    network.eval()
    phi = torch.cat([network.phi(batch) for batch, _ in _batches(encoding, rows)])
    return network.head.calibrate(phi, torch.from_numpy(rows.target))


@torch.no_grad()
def calibrate_pool(uncalibrated: Predict, knots: Tensor, encoding: Encoding, rows: Table | None) -> Calibration:
    """The calibration map of a pool or an ensemble, read at knots [k]; the identity if there are no rows."""
    if rows is None or not rows.rows:
        return Calibration()
    places = knots.double().numpy()
    below, above = scores.cells(places, np.clip(rows.target.astype(np.float64), places[0], places[-1]))
    heights = [read_heights(uncalibrated(batch), knots).double().numpy() for batch, _ in _batches(encoding, rows)]
    ends = np.cumsum([len(part) for part in heights])[:-1]
    sides = [
        scores.cell_pit(part, places, low, high)
        for part, low, high in zip(heights, np.split(below, ends), np.split(above, ends), strict=True)
    ]
    before, after = (np.concatenate(side) for side in zip(*sides, strict=True))
    return Calibration(1.0, fit_map(before, after))


def shortage(rows: Table | None) -> str:
    """A message for a run with few calibration rows or none; empty if there are enough."""
    count = 0 if rows is None else rows.rows
    if count >= ENOUGH_ROWS:
        return ""
    if not count:
        return "not calibrated: no rows were held out; set --calibration above 0"
    noise = 50.0 / np.sqrt(count)
    return (
        f"calibrated on only {count:,} rows: coverage is uncertain by up to {noise:.1f} points; "
        f"{ENOUGH_ROWS:,} rows or more are better (--calibration)"
    )


def _batches(encoding: Encoding, rows: Table) -> Iterator[tuple[dict[str, Tensor], np.ndarray]]:
    for table in rows.batches(_ROWS):
        yield {name: torch.from_numpy(values) for name, values in encoding.encode(table).items()}, table.target
