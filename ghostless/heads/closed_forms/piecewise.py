"""A CDF known at knots and linear between them: how both heads return bins, quantiles and exceedance."""

from torch import Tensor

# A segment with less mass than this is crossed as if it had it: where there is next to none, the level that falls
# into it says nothing of where, and float32 rounding in the CDF would be blown up by 1 / mass. A returned quantile is
# therefore exact to this much in its level.
LEAST_MASS = 1e-3


def quantiles(cdf: Tensor, knots: Tensor, levels: Tensor) -> Tensor:
    """Invert the piecewise-linear CDF. cdf [n, k + 1] rising from 0 to 1, knots [k + 1], levels [q] -> [n, q].

    Each segment contributes the share of its width that lies below the level, so the result rises with the level by
    construction: returned quantiles never cross, and none needs a sort or a search.
    """
    mass = cdf[..., 1:] - cdf[..., :-1]
    below = levels.unsqueeze(-1) - cdf[..., None, :-1]
    share = (below / mass.clamp(min=LEAST_MASS).unsqueeze(-2)).clamp(0.0, 1.0)
    return knots[0] + share @ (knots[1:] - knots[:-1])


def interpolate(cdf: Tensor, knots: Tensor, points: Tensor) -> Tensor:
    """The CDF at any points [p] or [n, p], 0 below the first knot and 1 above the last. cdf [n, k + 1] -> [n, p]."""
    share = ((points.unsqueeze(-1) - knots[:-1]) / (knots[1:] - knots[:-1])).clamp(0.0, 1.0)
    mass = cdf[..., 1:] - cdf[..., :-1]
    return mass @ share.T if points.dim() == 1 else (share @ mass.unsqueeze(-1)).squeeze(-1)
