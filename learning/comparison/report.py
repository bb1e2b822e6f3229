"""A comparison as Markdown, CSV and pictures."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from learning.comparison.source import Source
from learning.comparison.table import Plan, Row

QUALITY = {"nll": "NLL", "crps": "CRPS", "ece": "ECE", "rmse": "RMSE"}
COST = {"train_cpu_seconds": "training, CPU s", "answer_ms": "256 rows, CPU ms"}


def write_table(
    rows: Sequence[Row], source: Source, plan: Plan, out: Path, update: Path | None, console: Console
) -> None:
    suffix = "" if plan.reconstruction == "own" else f"-{plan.reconstruction}"
    name = f"{source.name}{suffix}"
    out.mkdir(parents=True, exist_ok=True)
    text = table_markdown(rows)
    (out / f"{name}.md").write_text(text)
    write_csv(rows, out / f"{name}.csv")
    console.print(Markdown(text))


def table_markdown(rows: Sequence[Row]) -> str:
    headings = ["method", *QUALITY.values(), "90% covers", *COST.values(), "seeds"]
    return markdown(headings, [_cells(row) for row in rows if row.runs])


def _cells(row: Row) -> list[str]:
    quality = [_with_deviation(row, figure) for figure in QUALITY]
    cost = [f"{row.mean('train_cpu_seconds'):.0f}", f"{row.mean('answer_ms'):.1f}"]
    return [row.method.label, *quality, f"{row.mean('coverage_90'):.3f}", *cost, str(len(row.runs))]


def _with_deviation(row: Row, figure: str) -> str:
    deviation = row.deviation(figure)
    return f"{row.mean(figure):.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def markdown(headings: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """One line a run."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        figures = sorted({name for row in rows for run in row.runs for name in run})
        writer.writerow(["method", "seed", *figures])
        for row in rows:
            for seed, run in enumerate(row.runs):
                writer.writerow([row.method.name, seed, *(run[name] for name in figures)])
