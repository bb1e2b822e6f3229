"""Calibration of a head's distribution on held-out rows: a temperature, and a map of probabilities.

    G(t) = M(F(t)),   M(u) = mean_i clip((u - F_i(y_i-)) / (F_i(y_i) - F_i(y_i-)), 0, 1)

F is the head's CDF at temperature T, and M the distribution function of the randomised PIT over calibration rows. Bins,
atoms, quantiles, exceedance, moments and scores are all read from G at the knots, linear in between, so they are
consistent and every level is calibrated. M is piecewise linear on a uniform grid of probabilities, so a graph evaluates
it with one clip per piece: M(u) = sum_j (M_{j+1} - M_j) clip(u J - j, 0, 1).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ghostless.heads.bins import Floats

PIECES = 20
# With fewer rows the noise of the map, sqrt(u (1 - u) / n), exceeds 1.1 points: it is still fitted, with a warning.
ENOUGH_ROWS = 2_000
MOST_ROWS = 20_000
TEMPERATURES = (0.25, 4.0)
# Pseudo-rows in every piece of the map, so that it is strictly increasing.
_PSEUDO_ROWS = 1.0
_POINT = 1e-9
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_PRECISION = 1e-3

IDENTITY = tuple(float(np.float32(j / PIECES)) for j in range(PIECES + 1))


@dataclass(frozen=True)
class Calibration:
    """temperature T > 0, and the values [J + 1] of the map on the uniform grid j / J: strictly increasing from 0 to
    1."""

    temperature: float = 1.0
    heights: tuple[float, ...] = IDENTITY

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.heights[:-1], self.heights[1:], strict=True))
        if not rising or self.heights[0] != 0.0 or self.heights[-1] != 1.0:
            raise ValueError(f"a calibration map must rise strictly from 0 to 1, got {self.heights}")
        if not self.temperature > 0.0:
            raise ValueError(f"a temperature must be positive, got {self.temperature}")

    @property
    def is_identity(self) -> bool:
        """Whether the map is the identity."""
        return self.heights == IDENTITY

    def apply(self, probabilities: Tensor) -> Tensor:
        """M of probabilities of any shape."""
        return apply_map(probabilities, torch.tensor(self.heights, dtype=probabilities.dtype))


def apply_map(probabilities: Tensor, heights: Tensor) -> Tensor:
    """M(u) for u of any shape; heights [J + 1] on the uniform grid."""
    pieces = len(heights) - 1
    scaled = probabilities.clamp(0.0, 1.0) * pieces
    piece = scaled.floor().clamp(0, pieces - 1)
    index = piece.long()
    low = heights[index]
    return low + (scaled - piece) * (heights[index + 1] - low)


def fit_map(before: ArrayLike, after: ArrayLike, pieces: int = PIECES) -> tuple[float, ...]:
    """The map's values [pieces + 1] from F(y-) and F(y) [n] of rows that were not used for training.

    With few rows the empirical map is noisy. Its deviation from the identity is a sum of sines. For a calibrated model
    the coefficient of sin(j pi u) has variance 1 / (2 n J^2 sin^2(j pi / 2J)) (a Brownian bridge on the grid). Each
    coefficient is shrunk towards 0 by the share of its square that this variance explains. Broad deviations, which
    affect coverage, remain; ragged ones, which would only spoil the density, are removed.
    """
    low, high = np.asarray(before, np.float64), np.asarray(after, np.float64)
    grid = np.arange(1, pieces) / pieces
    if not len(low):
        return tuple(float(np.float32(value)) for value in (0.0, *grid, 1.0))
    width = np.maximum(high - low, _POINT)
    departure = np.array([np.clip((u - low) / width, 0.0, 1.0).mean() for u in grid]) - grid
    order = np.arange(1, pieces)
    sines = np.sin(np.pi * np.outer(order, grid))
    coefficients = 2.0 / pieces * sines @ departure
    chance = 0.5 / (len(low) * (pieces * np.sin(0.5 * np.pi * order / pieces)) ** 2)
    kept = coefficients * np.maximum(0.0, 1.0 - chance / np.maximum(coefficients**2, 1e-30))
    smooth = np.concatenate([[0.0], grid + kept @ sines, [1.0]])
    # Strictly increasing: every piece has at least the mass of one pseudo-row.
    steps = np.maximum(np.diff(smooth), _PSEUDO_ROWS / (len(low) + pieces))
    heights = np.concatenate([[0.0], np.cumsum(steps / steps.sum())[:-1], [1.0]])
    return tuple(float(value) for value in heights.astype(np.float32))


def fit_temperature(nll: Callable[[float], float]) -> float:
    """The T that minimises `nll(T)`, the mean negative log probability of the bins that contain held-out targets.

    Golden-section search in log T: the loss is convex in 1 / T.
    """
    low, high = (math.log(end) for end in TEMPERATURES)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = nll(math.exp(left)), nll(math.exp(right))
    while high - low > _PRECISION:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = nll(math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = nll(math.exp(right))
    best = float(np.float32(math.exp(0.5 * (low + high))))
    return best if nll(best) < nll(1.0) else 1.0


def randomised(before: ArrayLike, after: ArrayLike, seed: int = 0) -> Floats:
    """The randomised PIT [n]: uniform between F(y-) and F(y), the same for the same seed."""
    low, high = np.asarray(before, np.float64), np.asarray(after, np.float64)
    values: Floats = low + np.random.default_rng(seed).random(len(low)) * (high - low)
    return values
