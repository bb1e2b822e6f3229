"""The scale on which QR is trained: z = 0.7 rank(y) + 0.3 (y - low) / range, standardised.

Quantiles of z are spread evenly where the target has mass, whatever its unit, and still reflect distances. The warp is
piecewise linear between the knots of `ghostless.heads.bins`, so a graph only needs z at the knots. At an atom it jumps:
the point mass fills an interval of z, over which training spreads its rows at random.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ghostless.heads.bins import Bins, Floats

RANK_WEIGHT = 0.7
# Share of the sample in each tail; distances inside the tails are ignored.
TAIL = 0.001
# Used instead of infinity; z has standard deviation 1.
FAR = 1e4
# Multiples of the golden ratio are spread evenly over [0, 1), without random numbers.
_GOLDEN = 0.6180339887498949


def rank_warp(bins: Bins, sample: ArrayLike) -> Floats:
    """z [k] at the knots, for targets distributed as `sample` [n]: mean 0 and variance 1 over it.

    Distances count only inside the central 99.8% of the sample, so that a range far wider than the data does not
    matter. A segment without rows gives half of its width to each of the nearest segments with rows, and z increases by
    almost nothing over it, because quantiles that cross it would put mass where there are no targets. In the gap
    between two atoms and in segments beyond the data, z is constant (see Warp.reading).
    """
    y = np.asarray(sample, np.float64)
    shares = bins.shares(y)
    low, high = (float(value) for value in np.quantile(y, [TAIL, 1.0 - TAIL]))
    ends = (low, high) if low < high else (float(bins.knots[0]), float(bins.knots[-1]))
    widths = np.diff(np.clip(bins.knots, *ends)) / (ends[1] - ends[0])
    present = np.flatnonzero(shares)
    empty = np.setdiff1d(np.arange(present[0], present[-1]), present)
    after = np.searchsorted(present, empty)
    given = np.where(shares > 0, widths, 0.0)
    np.add.at(given, present[after - 1], 0.5 * widths[empty])
    np.add.at(given, present[after], 0.5 * widths[empty])
    # One pseudo-row per class, so that z also increases over classes without rows.
    inside = np.isin(np.arange(len(shares)), bins.classes)
    inside[: present[0]] = inside[present[-1] + 1 :] = False
    ranks = (shares * len(y) + inside) / (len(y) + inside.sum())
    steps = np.where(inside, RANK_WEIGHT * ranks + (1.0 - RANK_WEIGHT) * given, 0.0)
    z = np.concatenate([[0.0], np.cumsum(steps)])
    centres = 0.5 * (z[1:] + z[:-1])
    mean = shares @ centres
    variance = shares @ ((centres - mean) ** 2 + steps**2 / 12.0)
    standardised: Floats = (z - mean) / np.sqrt(variance)
    return standardised


@dataclass(frozen=True)
class Warp:
    """z [k], non-decreasing, at knots [k]: linear between them, an interval at an atom."""

    knots: Tensor
    z: Tensor

    def randomised(self, y: Tensor, shares: Tensor) -> Tensor:
        """z of targets y [n]; `shares` [n] in [0, 1] are the positions inside an atom's interval."""
        first = torch.searchsorted(self.knots, y, right=False)
        last = torch.searchsorted(self.knots, y, right=True) - 1
        place = torch.minimum(first, last).clamp(0, len(self.knots) - 2)
        low, width = self.knots[place], self.knots[place + 1] - self.knots[place]
        inside = ((y - low) / width.clamp(min=torch.finfo(y.dtype).tiny)).clamp(0.0, 1.0)
        position = torch.where(width > 0.0, inside, shares)
        return self.z[place] + position * (self.z[place + 1] - self.z[place])

    def reading(self) -> Tensor:
        """z [k] at which a CDF in z is read: -FAR and FAR at the knots where the data begins and ends, and beyond.

        Mass outside the data then belongs to the first and the last segment with data, as for clipped targets.
        """
        # An end that appears twice with the same z is an atom with the mass beyond it. This is the case for the paper's
        # quantiles in target units.
        before = (self.z <= self.z[0]) & (self.knots > self.knots[0])
        after = (self.z >= self.z[-1]) & (self.knots < self.knots[-1])
        before[0] = after[-1] = True
        return self.z.masked_fill(before, -FAR).masked_fill(after, FAR)

    def slopes(self) -> Tensor:
        """dy / dz [k - 1] between knots: 0 inside an atom, and in a gap, where z is constant."""
        steps, widths = self.z.diff(), self.knots.diff()
        return torch.where(steps > 0.0, widths / steps.clamp(min=torch.finfo(steps.dtype).tiny), 0.0)


def even_shares(count: int) -> Tensor:
    """[count] fixed numbers that are spread evenly over [0, 1), for validation."""
    return torch.from_numpy((np.arange(1, count + 1) * _GOLDEN) % 1.0).float()
