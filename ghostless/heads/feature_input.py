"""Describes the features that a backbone receives."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class FeatureInput:
    """Describes one entry of the dictionary that a backbone's `forward` receives.

    kind `id`: int64 [n], a row of a table with `rows` rows; row 0 stands for every unknown id. kind `number`: float32
    [n], centred at the training median, in units of the training spread, and growing with the logarithm far from it;
    `rows` is 0. role: `context` has one value per request, `candidate` one per row.
    """

    name: str
    kind: Literal["id", "number"]
    role: Literal["context", "candidate"]
    rows: int
