"""Figures of a benchmark beside their bounds: printed, written as JSON, and failing where one falls short."""

import json
import operator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

_COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq}


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    bound: str
    ok: bool


@dataclass
class Figures:
    """Collects figures as they are measured."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    console: Console = field(default_factory=Console)

    def add(self, name: str, value: float, bound: str) -> Figure:
        """Record `value` against `bound`, written as a comparison: "<= 1.25". A NaN never holds."""
        comparison, limit = bound.split()
        figure = Figure(name, float(value), bound, bool(_COMPARISONS[comparison](float(value), float(limit))))
        self.figures.append(figure)
        mark = "ok" if figure.ok else "SHORT"
        style = "green" if figure.ok else "bold red"
        self.console.print(f"  {name}: {figure.value:.6g} (bound {bound}) ", end="", highlight=False)
        self.console.print(mark, style=style)
        return figure

    def finish(self, json_path: Path | None) -> None:
        """Print the table, write the JSON, and exit non-zero where a figure falls short."""
        table = Table(title=self.title, title_justify="left")
        for heading in ("figure", "value", "bound", "ok"):
            table.add_column(heading, justify="left" if heading == "figure" else "right")
        for figure in self.figures:
            verdict = "[green]yes[/]" if figure.ok else "[bold red]NO[/]"
            table.add_row(figure.name, f"{figure.value:.6g}", figure.bound, verdict)
        self.console.print(table)
        if json_path is not None:
            json_path.parent.mkdir(parents=True, exist_ok=True)
            json_path.write_text(json.dumps({"figures": [asdict(f) for f in self.figures]}, indent=2) + "\n")
        if not self.figures or not all(figure.ok for figure in self.figures):
            raise SystemExit(1)
