"""Error of a closed form relative to its reference, in both precisions, and the allowed error."""

from collections.abc import Callable

import torch
from torch import Tensor

from loadtest.figures import Figures

BOUNDS = {torch.float64: "<= 1e-5", torch.float32: "<= 1e-3"}


def relative_error(value: Tensor, reference: Tensor, floor: float = 0.0) -> float:
    """Largest |value - reference| / max(|reference|, floor); NaN if any value is NaN."""
    difference = (value.double() - reference.double()).abs()
    return (difference / reference.double().abs().clamp(min=max(floor, 1e-300))).max().item()


def log_error(value: Tensor, reference: Tensor) -> float:
    """Error of logarithms: absolute below 1 in size, which is the relative error of the number whose log it is."""
    return relative_error(value, reference, floor=1.0)


def measure(
    figures: Figures,
    name: str,
    evaluate: Callable[[torch.dtype], Tensor],
    reference: Tensor,
    error: Callable[[Tensor, Tensor], float] = relative_error,
) -> None:
    """Compare `evaluate` in float64 and in float32 with the same reference; its inputs must be exact in float32."""
    for dtype, bound in BOUNDS.items():
        precision = str(dtype).removeprefix("torch.")
        figures.add(f"{name}, {precision}", error(evaluate(dtype), reference), bound)


def exact_in_float32(values: Tensor) -> Tensor:
    """Values rounded to float32 and returned as float64, so that both precisions start from the same numbers."""
    return values.float().double()


def absolute_error(value: Tensor, reference: Tensor) -> float:
    """Largest absolute error, for probabilities, whose scale is 1."""
    return (value.double() - reference.double()).abs().max().item()
