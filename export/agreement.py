"""Checks that a graph's outputs agree with each other: all are computed from one calibrated CDF, which is also an
output."""

import numpy as np
import torch

from export.builder import Array
from export.options import Layout
from ghostless.contract import metadata
from ghostless.heads.closed_forms import piecewise

Answers = dict[str, Array]
VARIANCE = "variance"


def read_from_cdf(cdf: Array, layout: Layout) -> Answers:
    """The values that the other outputs must have for heights [n, k], computed in float64."""
    heights, knots = torch.from_numpy(np.ascontiguousarray(cdf, np.float64)), torch.from_numpy(layout.knots)
    masses = heights.diff(dim=-1)
    mean, variance = piecewise.moments(masses, knots)
    return {
        metadata.MEAN: mean.numpy(),
        VARIANCE: variance.numpy(),
        metadata.QUANTILES: piecewise.quantiles(heights, knots, torch.from_numpy(layout.levels)).numpy(),
        metadata.BINS: masses.numpy() @ layout.bins_of_segments(),
        metadata.ATOMS: masses.numpy()[:, np.diff(layout.knots) == 0],
        metadata.CDF: heights.numpy(),
    }
