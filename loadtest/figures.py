"""Figures of a benchmark and their bounds: printed, written as JSON, and checked."""

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtest.provenance import describe_run

_COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq}
_BOOTSTRAP_DRAWS = 2000


@dataclass(frozen=True)
class Figure:
    """`spread` is the standard error of `value`, None if unknown; `samples` is the number of rounds it is based on."""

    name: str
    value: float
    bound: str
    ok: bool
    spread: float | None = None
    samples: int = 1


@dataclass(frozen=True)
class Skipped:
    """A part that was not measured."""

    name: str
    reason: str


def standard_error_of_median(samples: Sequence[float]) -> float | None:
    """By bootstrap, with a fixed seed; None for fewer than three samples.

    It is half the width of the central 68% of the bootstrap medians. Their standard deviation would be inflated by a
    single interrupted round.
    """
    if len(samples) < 3:
        return None
    drawn = np.random.default_rng(0).choice(np.asarray(samples, np.float64), (_BOOTSTRAP_DRAWS, len(samples)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.1587, 0.8413])
    return float(high - low) / 2


def standard_error_of_mean(samples: Sequence[float]) -> float | None:
    """None for fewer than two samples."""
    if len(samples) < 2:
        return None
    return float(np.std(samples, ddof=1) / len(samples) ** 0.5)


@dataclass
class Figures:
    """Collects figures as they are measured."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    console: Console = field(default_factory=Console)
    skipped: list[Skipped] = field(default_factory=list)

    def add(
        self, name: str, value: float, bound: str, *, samples: Sequence[float] = (), spread: float | None = None
    ) -> Figure:
        """Record `value` against `bound`, written as a comparison: "<= 1.25". A NaN never holds.

        `samples` are the values of the rounds, with median `value`. The standard error `spread` is computed from them
        unless given.
        """
        comparison, limit = bound.split()
        ok = bool(_COMPARISONS[comparison](float(value), float(limit)))
        if spread is None:
            spread = standard_error_of_median(samples)
        figure = Figure(name, float(value), bound, ok, spread, max(len(samples), 1))
        self.figures.append(figure)
        mark = "ok" if figure.ok else "SHORT"
        style = "green" if figure.ok else "bold red"
        self.console.print(f"  {name}: {_text(figure)} (bound {bound}) ", end="", highlight=False)
        self.console.print(mark, style=style)
        return figure

    def skip(self, name: str, reason: str) -> None:
        """Record that a part is not measured, and why."""
        self.skipped.append(Skipped(name, reason))
        self.console.print(f"  {name} skipped: {reason}", style="yellow", highlight=False)

    def save(self, path: Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the figures as JSON. `about` replaces the provenance of this process and its checkout."""
        content = {
            "title": self.title,
            "meta": dict(about or describe_run()),
            "figures": [asdict(figure) for figure in self.figures],
            "skipped": [asdict(part) for part in self.skipped],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n")

    def finish(self, json_path: Path | None) -> None:
        """Print the table, write the JSON, and exit with an error if a figure misses its bound or nothing was
        measured."""
        table = Table(title=self.title, title_justify="left")
        for heading in ("figure", "value", "bound", "ok"):
            table.add_column(heading, justify="left" if heading == "figure" else "right")
        for figure in self.figures:
            verdict = "[green]yes[/]" if figure.ok else "[bold red]NO[/]"
            table.add_row(figure.name, _text(figure), figure.bound, verdict)
        for part in self.skipped:
            table.add_row(part.name, "skipped", "", "")
        self.console.print(table)
        if json_path is not None:
            self.save(json_path)
        if not (self.figures or self.skipped) or not all(figure.ok for figure in self.figures):
            raise SystemExit(1)


def _text(figure: Figure) -> str:
    return f"{figure.value:.6g}" + (f" ± {figure.spread:.2g}" if figure.spread else "")
