"""Converts one network's masses or heights to those at the graph's knots: constant matrices, folded into products.

The members of an ensemble were trained on different parts of the data, so each may have its own knots; all are
converted to those of the first.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from export.builder import Array
from ghostless.heads.histogram import HistogramHead
from ghostless.heads.predictive import KnotPredictive, read_heights
from ghostless.heads.quantile import QuantileHead
from ghostless.heads.warp import FAR


@dataclass(frozen=True)
class _Units(KnotPredictive):
    """Each row has all of its mass in one segment: row i in segment i."""

    places: Tensor

    @property
    def knots(self) -> Tensor:
        return self.places

    @property
    def heights(self) -> Tensor:
        return torch.triu(torch.ones(len(self.places) - 1, len(self.places), dtype=torch.float64), 1)


def segments_onto(own: Array, knots: Array) -> Array:
    """[k' - 1, k - 1]: the fraction of each segment between knots own [k'] that lies in each segment between knots
    [k]."""
    if np.array_equal(own, knots):
        return np.eye(len(knots) - 1)
    heights = read_heights(_Units(torch.from_numpy(own)), torch.from_numpy(knots))
    matrix: Array = heights.diff(dim=-1).numpy()
    return matrix


def class_masses(head: HistogramHead, knots: Array) -> Array | None:
    """[K, k - 1]: a CR head's classes as masses of the segments between knots [k]; None if they are the same."""
    own = head.edges.double().numpy()
    matrix = segments_onto(own, knots)[head.classes.numpy()]
    return None if np.array_equal(matrix, np.eye(len(matrix), len(knots) - 1)) else matrix


def quantile_heights(head: QuantileHead, groups: int, points: slice, knots: Array) -> tuple[Array, Array]:
    """[p, k] and [k]: heights at knots [k] from sums over the mixture's components of erf at the head's own z[points].

    The head's CDF is the mean of (1 + erf) / 2, but 0 up to the knot where the data begins and 1 from the knot where it
    ends (Warp.reading). `erf` is also evaluated at these z, because the last layer's variance depends on it.
    """
    own = head.edges.double().numpy()
    size = len(own)
    read = head.warp.reading().double().numpy()
    inside = np.abs(read) < FAR
    to_own = np.diag(np.where(inside, 0.5 / groups, 0.0))
    offset = np.where(inside, 0.5, (read > 0.0).astype(np.float64))
    if not np.array_equal(own, knots):
        onto = (
            np.diff(np.eye(size), axis=1)
            @ segments_onto(own, knots)
            @ np.triu(np.ones((len(knots) - 1, len(knots))), 1)
        )
        to_own, offset = to_own @ onto, offset @ onto
    return to_own[points], offset
