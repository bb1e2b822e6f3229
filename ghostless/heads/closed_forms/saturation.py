"""Keeping a delta-method variance inside the total that it is a part of."""

import torch
from torch import Tensor


def saturated(delta: Tensor, total: Tensor) -> Tensor:
    """A delta-method variance d kept within its total: d total / (d + total), d when small and total when large.

    The minimum is for rounding: where d is much the larger, the product may come out one step above the total.
    """
    return torch.minimum(delta * (total / (delta + total).clamp(min=torch.finfo(total.dtype).tiny)), total)
