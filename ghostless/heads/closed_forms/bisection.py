"""Quantiles of a distribution that is given only by its CDF."""

from collections.abc import Callable

import torch
from torch import Tensor


def quantiles(
    cdf: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, levels: Tensor, iterations: int = 60
) -> Tensor:
    """Q(u) at levels [q] -> [n, q], for brackets low and high [n, 1] or [n, q] and a CDF of points [n, q] -> [n, q].

    Every level is bisected separately, and the result increases with the level: quantiles never cross.
    """
    low, high = low.expand(-1, len(levels)), high.expand(-1, len(levels))
    for _ in range(iterations):
        middle = 0.5 * (low + high)
        below = cdf(middle) < levels
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 0.5 * (low + high)
