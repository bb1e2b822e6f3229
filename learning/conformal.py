"""Split-conformal calibration of returned quantiles: a map of levels, fitted on rows that training never saw.

A returned quantile at level u is Q(u | x), read from the predictive CDF. The conformal score of a row is the level at
which its target lies, v = Q^-1(y | x): the probability integral transform. In place of u the model is asked for an
order statistic of n such scores, so every level and every interval between two levels keeps its promise whatever the
model is worth, as long as the rows to come are exchangeable with those n (Vovk et al. 2005; Chernozhukov et al. 2021):

    u <  1/2:  P(y < Q(u')) <= u,   u' the floor((n + 1) u)-th smallest score
    u >= 1/2:  P(y <= Q(u')) >= u,  u' the ceil((n + 1) u)-th smallest score

so that the interval from u to 1 - u covers at least 1 - 2u, and at most 2 / (n + 1) more where scores do not tie. It
costs nothing: the graph's levels are constants, and these are other constants.

Targets that were clipped to their range sit on its ends. A tenth of all views of nothing are a step that no quantile at
level 0.05 can share: an interval that begins at 0 + a hair loses them all. So a quantile that comes within `SNAP` of an
end with such rows is returned as the end itself, and the scores know it.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ghostless.heads.closed_forms import piecewise
from learning.array_checks import Floats, row_chunks

# Of the target's range.
SNAP = 0.01
# More rows make the promise no tighter than anyone can measure: the coverage's own spread is 0.2% at 20,000.
MOST_ROWS = 20_000
# Levels beyond [0, 1] that stand for the ends of the range, whatever the distribution.
FIRST, LAST = -1.0, 2.0
INTERVALS = (0.5, 0.8, 0.9)
_BISECTIONS = 50


@dataclass(frozen=True)
class Snap:
    """Quantiles within `low_reach` of `low` are returned as `low`, and likewise at the other end.

    From one to two reaches off, a ramp of slope 2 leads back to the quantile itself: a jump would make of a rounding
    error another answer.
    """

    low: float
    high: float
    low_reach: float
    high_reach: float

    @classmethod
    def of(cls, y: Tensor, low: float, high: float) -> "Snap":
        """Snapping only at an end on which targets y [n] sit."""
        reach = SNAP * (high - low)
        return cls(low, high, reach * bool((y <= low).any()), reach * bool((y >= high).any()))

    def __call__(self, quantiles: Tensor) -> Tensor:
        lowered = (2.0 * (quantiles - self.low_reach) - self.low).clamp(min=self.low)
        raised = (2.0 * (quantiles + self.high_reach) - self.high).clamp(max=self.high)
        return torch.maximum(torch.minimum(quantiles, lowered), raised)

    def largest_at_most(self, y: Tensor) -> Tensor:
        """The largest quantile that is returned as y [n] or less."""
        return torch.where(y >= self.high, self.high, self._inverse(y))

    def smallest_at_least(self, y: Tensor) -> Tensor:
        """The smallest quantile that is returned as y [n] or more."""
        return torch.where(y <= self.low, self.low, self._inverse(y))

    def _inverse(self, y: Tensor) -> Tensor:
        above = torch.maximum(y, 0.5 * (y + self.low) + self.low_reach)
        return torch.minimum(above, 0.5 * (y + self.high) - self.high_reach)


@dataclass(frozen=True)
class ConformalLevels:
    """The scores of n calibration rows, each sorted [n]: `lower` for levels below 1/2, `upper` for the others."""

    lower: Floats
    upper: Floats
    snap: Snap

    @property
    def rows(self) -> int:
        return len(self.lower)

    def adjusted(self, levels: ArrayLike) -> Floats:
        """The levels [q] to ask the model for in place of `levels` [q], not decreasing.

        Too few rows for a level (n + 1 < 1 / u) give an end of the range, the only value that keeps the promise.
        """
        given = np.asarray(levels, np.float64)
        return np.maximum.accumulate([self._adjusted(float(level)) for level in given])

    def _adjusted(self, level: float) -> float:
        # Rounding must not push (n + 1) u over the whole number that it is.
        position = round((self.rows + 1) * level, 9)
        if level < 0.5:
            place = math.floor(position)
            return float(self.lower[place - 1]) if place else FIRST
        place = math.ceil(position)
        return float(self.upper[place - 1]) if place <= self.rows else LAST


def fit(cdf: ArrayLike, knots: ArrayLike, y: ArrayLike) -> ConformalLevels:
    """From the predictive CDF [n, k] at knots [k] of calibration rows, as it is served, and their targets y [n]."""
    heights, places, truth = _doubles(cdf), _doubles(knots), _doubles(y)
    snap = Snap.of(truth, float(places[0]), float(places[-1]))
    lower = level_at(heights, places, snap.largest_at_most(truth))
    upper = level_at(heights, places, snap.smallest_at_least(truth))
    return ConformalLevels(np.sort(lower.numpy()), np.sort(upper.numpy()), snap)


def level_at(cdf: Tensor, knots: Tensor, y: Tensor) -> Tensor:
    """The level whose returned quantile is y: cdf [n, k], knots [k], y [n] -> [n].

    By bisection of the very function that returns quantiles, so that its floor of a segment's mass counts too.
    """
    found = torch.empty_like(y)
    for rows in row_chunks(len(y), len(knots)):
        low, high = torch.full_like(y[rows], FIRST), torch.full_like(y[rows], LAST)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = piecewise.quantiles(cdf[rows], knots, middle.unsqueeze(-1)).squeeze(-1) < y[rows]
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        found[rows] = 0.5 * (low + high)
    return found


def quantiles(levels: ConformalLevels | None, cdf: ArrayLike, knots: ArrayLike, wanted: ArrayLike) -> Floats:
    """Returned quantiles [n, q] at `wanted` levels [q], calibrated by `levels` or, without, as the model has them."""
    heights, places = _doubles(cdf), _doubles(knots)
    asked = torch.from_numpy(np.asarray(wanted, np.float64) if levels is None else levels.adjusted(wanted))
    values = torch.empty(len(heights), len(asked), dtype=torch.float64)
    for rows in row_chunks(len(heights), len(places) * len(asked)):
        values[rows] = piecewise.quantiles(heights[rows], places, asked)
    result: Floats = (values if levels is None else levels.snap(values)).numpy()
    return result


def figures(levels: ConformalLevels, cdf: ArrayLike, knots: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Coverage of the calibrated central intervals on other rows, and the width of the 90% one with and without."""
    truth = np.asarray(y, np.float64)[:, None]
    central = [0.5 * (1.0 - share) for share in INTERVALS] + [0.5 * (1.0 + share) for share in INTERVALS]
    ends = quantiles(levels, cdf, knots, sorted(central))
    plain = quantiles(None, cdf, knots, sorted(central))
    inside = (ends <= truth) & (truth <= ends[:, ::-1])
    shares = inside[:, : len(INTERVALS)].mean(0)[::-1]
    return {
        "calibration_rows": levels.rows,
        **{f"conformal_{share:.0%}".rstrip("%"): float(got) for share, got in zip(INTERVALS, shares, strict=True)},
        "conformal_width_90": float((ends[:, -1] - ends[:, 0]).mean()),
        "width_90": float((plain[:, -1] - plain[:, 0]).mean()),
    }


def _doubles(values: ArrayLike) -> Tensor:
    return torch.from_numpy(np.array(values, np.float64))
