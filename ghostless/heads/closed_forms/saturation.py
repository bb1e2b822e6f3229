"""Limits a delta-method variance to the total that it is a part of."""

import torch
from torch import Tensor


def saturated(delta: Tensor, total: Tensor) -> Tensor:
    """A delta-method variance d limited to its total: d total / (d + total), which is about d if d is small and about
    the total if d is large.

    The minimum corrects rounding: if d is much larger, the product may exceed the total by one float step.
    """
    return torch.minimum(delta * (total / (delta + total).clamp(min=torch.finfo(total.dtype).tiny)), total)
