"""Checks that a graph that draws its own masks is the MC-dropout that torch computes. Only statistics can be compared.

A few rows are predicted many times in one call; each copy draws its own masks, in the graph and in torch.
"""

import numpy as np
import torch

from export import reference, rows
from export.builder import Array
from export.checks import Check, RunGraph
from export.graph import Networks
from export.options import Layout
from ghostless.contract import metadata

ROWS = 24
COPIES = 100
# Several thousand averages are compared, so one of them may well be four standard errors off.
STANDARD_ERRORS = 6.0
# Bound for the median over ROWS of the ratio of two standard deviations, each of COPIES values: more than four times
# its standard error of 0.026.
SPREAD = 0.12


def verify(
    run: RunGraph, networks: Networks, columns: dict[str, Array], layout: Layout, tolerance: float, seed: int
) -> list[Check]:
    """Compares the average of every output over copies of a row, and the spread of the copies' means. Masks shared by
    rows would give no spread; masks shared by passes, with 25 passes, five times the spread."""
    copies = {name: np.repeat(values[:ROWS], COPIES) for name, values in columns.items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = _by_row(reference.answer(networks, copies, layout))
    got = _by_row(run(rows.fed(copies)))
    checks = [
        Check(
            f"{name}: average against torch's dropout, standard errors",
            _distance(got[name], expected[name], tolerance),
            STANDARD_ERRORS,
        )
        for name in layout.outputs
    ]
    if metadata.MEAN in got:
        # The median over rows, because a single row far from the data may have four fifths of all variance.
        spread, own = (np.sqrt(answers[metadata.MEAN].var(1)) for answers in (got, expected))
        median = float(np.median(np.maximum(spread, 1e-30) / np.maximum(own, 1e-30)))
        ratio = max(median, 1.0 / median)
        checks.append(Check("mean: spread over passes against torch's dropout, ratio less 1", ratio - 1.0, SPREAD))
    return checks


def _by_row(answers: dict[str, Array]) -> dict[str, Array]:
    """[rows copies, ..] -> [rows, copies, ..]."""
    return {name: values.reshape(-1, COPIES, *values.shape[1:]).astype(np.float64) for name, values in answers.items()}


def _distance(got: Array, expected: Array, tolerance: float) -> float:
    """Largest distance between two averages over copies, in standard errors; distances within the tolerance of an exact
    comparison count as zero."""
    variance = (got.var(1) + expected.var(1)) / (COPIES - 1)
    apart = np.abs(got.mean(1) - expected.mean(1))
    allowed = tolerance * np.maximum(np.abs(expected.mean(1)), 1e-2 * np.quantile(np.abs(expected), 0.999))
    return float(np.max(np.maximum(apart - allowed, 0.0) / np.sqrt(variance + 1e-30)))
