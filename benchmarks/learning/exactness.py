"""How far a closed form may lie from its reference, in both precisions."""

from collections.abc import Callable

import torch
from torch import Tensor

from loadtest.figures import Figures

BOUNDS = {torch.float64: "<= 1e-5", torch.float32: "<= 1e-3"}


def relative_error(value: Tensor, reference: Tensor, floor: float = 0.0) -> float:
    """Largest |value - reference| / max(|reference|, floor); NaN if any value is."""
    difference = (value.double() - reference.double()).abs()
    return (difference / reference.double().abs().clamp(min=max(floor, 1e-300))).max().item()


def log_error(value: Tensor, reference: Tensor) -> float:
    """Of logarithms: below 1 in size the absolute error, which is the relative error of what they are the log of."""
    return relative_error(value, reference, floor=1.0)


def measure(
    figures: Figures,
    name: str,
    evaluate: Callable[[torch.dtype], Tensor],
    reference: Tensor,
    error: Callable[[Tensor, Tensor], float] = relative_error,
) -> None:
    """`evaluate` in float64 and float32 against the same reference; its inputs must be exact in float32."""
    for dtype, bound in BOUNDS.items():
        precision = str(dtype).removeprefix("torch.")
        figures.add(f"{name}, {precision}", error(evaluate(dtype), reference), bound)


def exact_in_float32(values: Tensor) -> Tensor:
    """Rounded so that both precisions start from the very same numbers, float64."""
    return values.float().double()


def absolute_error(value: Tensor, reference: Tensor) -> float:
    """Of probabilities, whose scale is 1."""
    return (value.double() - reference.double()).abs().max().item()
