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
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter rounds, the same bounds.")] = False,
    repository: Annotated[Path, typer.Option(help="Repository with an exported model.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Its model; the first by name if not given.")] = "",
    picture: Annotated[Path | None, typer.Option(help="Draw the drift scenario to this file.")] = None,
    rules: Annotated[Path, typer.Option(help="Folder of the Prometheus rules.")] = RULES,
) -> None:
    """Metrics against what clients saw, drift and its alerts, and what observing costs; with a real Prometheus."""
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
