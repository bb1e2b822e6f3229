"""Figures of several runs of the same method."""

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

RunFigures = dict[str, Any]


@dataclass(frozen=True)
class MethodResult:
    """One row of a table: a dict of figures per seed."""

    label: str
    runs: tuple[RunFigures, ...]

    def mean(self, figure: str) -> float:
        return fmean(run[figure] for run in self.runs)

    def deviation(self, figure: str) -> float | None:
        """Standard deviation over the seeds; None for a single seed."""
        return stdev(run[figure] for run in self.runs) if len(self.runs) > 1 else None

    def text(self, figure: str, digits: int = 4) -> str:
        deviation = self.deviation(figure)
        spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
        return f"{self.mean(figure):.{digits}f}{spread}"
