"""One figure of a verification with its bound, and the types that a verification uses."""

from collections.abc import Callable
from dataclasses import dataclass

from export.builder import Array

# Feature columns [n] each -> the graph's outputs.
RunGraph = Callable[[dict[str, Array]], dict[str, Array]]


@dataclass(frozen=True)
class Check:
    name: str
    value: float
    bound: float

    @property
    def ok(self) -> bool:
        return bool(self.value <= self.bound)
