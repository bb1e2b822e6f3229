"""`ghostless bench compare A.json B.json`: which figures became worse between two runs of a bench, beyond their error.

The bound of a figure gives its direction: with "<=" and "<" smaller is better, with ">=" and ">" larger, with "=="
closer to the limit. The error of a difference is twice its standard error, from the spreads of both figures. If only
one file has spreads (old files have none), its spread is used for both. If neither has one, the error is unknown; such
a figure fails the comparison only if it crossed its bound.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from loadtest.server_process import BenchError

# The error in standard errors: 95% confidence for a Gaussian.
_ERRORS = 2.0


class Verdict(Enum):
    SAME = "same"
    BETTER = "better"
    WITHIN_ERROR = "within its error"
    WITHIN_TOLERANCE = "worse, within the tolerance"
    WORSE = "WORSE"
    # Worse by more than the tolerance, but measured only once in both files, and still within its bound.
    UNKNOWN_ERROR = "worse, error unknown"


@dataclass(frozen=True)
class StoredFigure:
    """One figure of a file; `key` identifies the same figure in another file."""

    name: str
    value: float
    bound: str
    ok: bool
    spread: float | None

    @property
    def key(self) -> tuple[str, str]:
        # A figure may occur twice, with a lower and an upper bound.
        return self.name, self.bound.split()[0]


@dataclass(frozen=True)
class Compared:
    """The same figure in both files. `error` is that of the difference, None if unknown."""

    before: StoredFigure
    after: StoredFigure
    error: float | None
    verdict: Verdict

    @property
    def ratio(self) -> float:
        if self.before.value == self.after.value:
            return 1.0
        return self.after.value / self.before.value if self.before.value else math.inf


@dataclass(frozen=True)
class ComparedRuns:
    shared: list[Compared]
    only_before: list[str]
    only_after: list[str]

    @property
    def worse(self) -> list[Compared]:
        return [each for each in self.shared if each.verdict is Verdict.WORSE]


def read_figures(path: Path) -> tuple[list[StoredFigure], dict[str, Any]]:
    """Figures and metadata of a file written by a bench with --json, by this or an earlier version."""
    try:
        content = json.loads(path.read_text())
        figures = [
            StoredFigure(str(f["name"]), float(f["value"]), str(f["bound"]), bool(f["ok"]), f.get("spread"))
            for f in content["figures"]
        ]
    except OSError as error:
        raise BenchError(f"{path}: can't be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"{path}: not a file of figures; write one with `ghostless bench NAME --json FILE`") from error
    repeated = [name for (name, _), count in Counter(figure.key for figure in figures).items() if count > 1]
    if repeated:
        raise BenchError(f"{path}: several figures are called {repeated[0]!r}")
    return figures, content.get("meta", {})


def compare_runs(before: list[StoredFigure], after: list[StoredFigure], tolerance: float) -> ComparedRuns:
    """`tolerance` is relative to the value before."""
    old, new = ({figure.key: figure for figure in figures} for figures in (before, after))
    return ComparedRuns(
        [_compare(figure, new[key], tolerance) for key, figure in old.items() if key in new],
        [figure.name for key, figure in old.items() if key not in new],
        [figure.name for key, figure in new.items() if key not in old],
    )


def _compare(before: StoredFigure, after: StoredFigure, tolerance: float) -> Compared:
    error = _error(before.spread, after.spread)
    return Compared(before, after, error, _verdict(before, after, error, tolerance))


def _error(before: float | None, after: float | None) -> float | None:
    known = [spread for spread in (before, after) if spread is not None]
    if not known:
        return None
    return _ERRORS * math.hypot(known[0], known[-1])


def _verdict(before: StoredFigure, after: StoredFigure, error: float | None, tolerance: float) -> Verdict:
    if math.isnan(before.value) or math.isnan(after.value):
        return Verdict.WORSE if math.isnan(after.value) and not math.isnan(before.value) else Verdict.SAME
    if before.value == after.value:
        return Verdict.SAME
    exact = before.bound.startswith("==")
    worse_by = _worse_by(before, after)
    if worse_by <= 0:
        return Verdict.BETTER if exact or error is None or -worse_by > error else Verdict.WITHIN_ERROR
    if not exact and error is not None and worse_by <= error:
        return Verdict.WITHIN_ERROR
    if not exact and worse_by <= tolerance * abs(before.value):
        return Verdict.WITHIN_TOLERANCE
    if exact or error is not None or (before.ok and not after.ok):
        return Verdict.WORSE
    return Verdict.UNKNOWN_ERROR


def _worse_by(before: StoredFigure, after: StoredFigure) -> float:
    """How much worse the figure is, in its own unit; negative if it is better."""
    comparison, limit = before.bound.split()
    if comparison == "==":
        return abs(after.value - float(limit)) - abs(before.value - float(limit))
    return after.value - before.value if comparison.startswith("<") else before.value - after.value


def print_comparison(found: ComparedRuns, titles: tuple[str, str], console: Console) -> None:
    title = f"A: {titles[0]}, B: {titles[1]}; value ± standard error"
    table = Table("figure", "A", "B", "B / A", "verdict", title=title, title_justify="left")
    for each in found.shared:
        style = {Verdict.WORSE: "bold red", Verdict.UNKNOWN_ERROR: "yellow"}.get(each.verdict, "")
        table.add_row(
            each.before.name,
            _text(each.before),
            _text(each.after),
            f"{each.ratio:.4f}",
            each.verdict.value,
            style=style,
        )
    console.print(table)
    for letter, names in (("A", found.only_before), ("B", found.only_after)):
        for name in names:
            console.print(f"  only in {letter}: {name}", highlight=False, markup=False)


def _text(figure: StoredFigure) -> str:
    spread = "" if figure.spread is None else f" ± {figure.spread:.2g}"
    return f"{figure.value:.6g}{spread}" + ("" if figure.ok else " (SHORT)")


def compare(
    before: Annotated[
        Path, typer.Argument(metavar="A.json", help="Figures before the change, written by a bench with --json.")
    ],
    after: Annotated[
        Path, typer.Argument(metavar="B.json", help="Figures after the change, written by the same bench with --json.")
    ],
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Fraction by which a figure in B may be worse than in A.")
    ] = 0.03,
) -> None:
    """Compare the figures of two runs of a bench.

    Exits with status 1 if a figure is worse by more than twice the standard error of the difference and by more than
    the tolerance.

    Prints each figure with its standard error, and lists figures that only one file contains.
    """
    console = Console()
    (old, old_meta), (new, new_meta) = read_figures(before), read_figures(after)
    found = compare_runs(old, new, tolerance)
    print_comparison(found, (_title(before, old_meta), _title(after, new_meta)), console)
    if not found.shared:
        raise BenchError(f"{before} and {after} share no figure, so there is nothing to compare")
    console.print(
        f"{len(found.worse)} of {len(found.shared)} shared figures are worse by more than error and tolerance"
    )
    if found.worse:
        raise SystemExit(1)


def _title(path: Path, meta: dict[str, Any]) -> str:
    return f"{path} at {meta['commit']}" if meta.get("commit") else str(path)
