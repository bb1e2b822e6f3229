"""`ghostless bench triton`."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from benchmarks.serve import stages
from benchmarks.triton import stages as triton_stages
from loadtest.figures import Figures
from loadtest.h2load import find_h2load
from serving.engines.triton.local_server import find_binary


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds, with the same bounds.")] = False,
    repository: Annotated[Path, typer.Option(help="Model repository to serve.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
) -> None:
    """Measure the server's overhead over Triton, and failed requests when a Triton server is killed or updated."""
    figures = Figures("ghostless bench triton")
    served = find_or_make_model(repository, model, figures.console)
    find_binary()
    perf_analyzer = str(find_binary("perf_analyzer"))
    run = stages.ServeBench(repository, served, find_h2load(), stages.QUICK if quick else stages.FULL, figures)
    run.say(f"model {served.name}, {served.path}")
    with tempfile.TemporaryDirectory() as folder:
        with triton_stages.running_tritons(repository, served, Path(folder), count=1) as one:
            stages.measure_answers(run, one.facade.address)
            triton_stages.measure_overhead(run, one, perf_analyzer)
            triton_stages.compare_transports(run, one, perf_analyzer)
        with triton_stages.running_tritons(repository, served, Path(folder), count=2) as two:
            triton_stages.measure_kill(run, two)
            triton_stages.measure_outage(run, two)
            triton_stages.measure_rollout(run, two)
    figures.finish(json_path)
