"""A CDF given at knots and linear between them, from which both heads compute bins, atoms, quantiles and exceedance.

Knots [k] do not decrease; heights [n, k] rise from 0 to 1. A value v that appears twice among the knots is an atom,
with heights F(v-) and F(v).
"""

import torch
from torch import Tensor

from ghostless.contract.distribution import LEAST_MASS


def quantiles(cdf: Tensor, knots: Tensor, levels: Tensor) -> Tensor:
    """Invert the piecewise-linear CDF. cdf [n, k], knots [k], levels [q] -> [n, q].

    Each segment contributes the share of its width that is below the level, so the result increases with the level by
    construction: quantiles never cross, and no sort or search is needed. An atom has no width, so all levels inside it
    give its value.
    """
    mass = cdf[..., 1:] - cdf[..., :-1]
    below = levels.unsqueeze(-1) - cdf[..., None, :-1]
    share = (below / mass.clamp(min=LEAST_MASS).unsqueeze(-2)).clamp(0.0, 1.0)
    return knots[0] + share @ (knots[1:] - knots[:-1])


def interpolate(cdf: Tensor, knots: Tensor, points: Tensor, before: bool = False) -> Tensor:
    """F at any points [p] or [n, p], or F(point-) with `before`: 0 below the first knot, 1 above the last.

    cdf [n, k] -> [n, p]. The two differ only at atoms.
    """
    low, widths = knots[:-1], knots[1:] - knots[:-1]
    at = points.unsqueeze(-1)
    share = ((at - low) / widths.clamp(min=torch.finfo(widths.dtype).tiny)).clamp(0.0, 1.0)
    passed = at > low if before else at >= low
    share = torch.where(widths > 0.0, share, passed.to(share.dtype))
    mass = cdf[..., 1:] - cdf[..., :-1]
    return mass @ share.T if points.dim() == 1 else (share @ mass.unsqueeze(-1)).squeeze(-1)


def moments(masses: Tensor, knots: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance [n] of a distribution that is uniform inside segments, with atoms. masses [n, k - 1], knots
    [k]."""
    centres, widths = 0.5 * (knots[1:] + knots[:-1]), knots[1:] - knots[:-1]
    mean = masses @ centres
    deviation = centres - mean.unsqueeze(-1)
    return mean, (masses * deviation.square()).sum(-1) + masses @ (widths.square() / 12.0)


def density(masses: Tensor, knots: Tensor, points: Tensor) -> Tensor:
    """f at points [p] -> [n, p]: constant inside a segment, 0 beyond the knots. Atoms have no density."""
    widths = knots[1:] - knots[:-1]
    place = torch.searchsorted(knots, points.contiguous(), right=True) - 1
    inside = (place >= 0) & (place < len(widths))
    height = torch.where(widths > 0.0, masses / widths.clamp(min=torch.finfo(widths.dtype).tiny), 0.0)
    return height[..., place.clamp(0, len(widths) - 1)] * inside
