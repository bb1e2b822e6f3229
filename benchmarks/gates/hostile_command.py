"""`python -m benchmarks.gates.hostile_command`: conformance and hostile clients alone."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from benchmarks.gates import conformance, hostile
from loadtest.figures import Figures


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds, with the same bounds.")] = False,
    repository: Annotated[Path, typer.Option(help="Model repository to serve.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
    only: Annotated[list[str] | None, typer.Option(help="Only attacks whose names contain this word.")] = None,
) -> None:
    """Measure what hostile clients do to another client's calls, to the server's memory, and how they end."""
    figures = Figures("ghostless bench gates")
    served = find_or_make_model(repository, model, figures.console)
    conformance.measure_conformance(figures)
    hostile.measure_hostile(figures, repository, served, hostile.QUICK if quick else hostile.FULL, only or ())
    figures.finish(json_path)


if __name__ == "__main__":
    typer.run(bench)
