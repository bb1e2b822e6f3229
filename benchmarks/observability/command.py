"""`ghostless bench observability`."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from benchmarks.observability import stages
from benchmarks.observability.drift import RULES
from loadtest.figures import Figures
from loadtest.h2load import find_h2load


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds, with the same bounds.")] = False,
    repository: Annotated[Path, typer.Option(help="Model repository to serve.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
    picture: Annotated[Path | None, typer.Option(help="Write a plot of the drift scenario to this file.")] = None,
    rules: Annotated[Path, typer.Option(help="Folder with the Prometheus rules to test.")] = RULES,
) -> None:
    """Check metrics against client-side counts, check drift alerts in a real Prometheus, and measure their cost."""
    figures = Figures("ghostless bench observability")
    served = find_or_make_model(repository, model, figures.console)
    plan = stages.QUICK if quick else stages.FULL
    run = stages.ObservabilityBench(repository, served, find_h2load(), plan, figures, rules, picture)
    run.say(f"model {served.name}, {served.path}")
    stages.measure_counts(run)
    stages.measure_p99(run)
    stages.measure_drift(run)
    stages.measure_single_causes(run)
    stages.measure_overhead(run)
    figures.finish(json_path)
