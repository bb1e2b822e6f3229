"""`ghostless bench serve`."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from benchmarks.serve import stages
from loadtest.bare_session import bare_cores
from loadtest.figures import Figures
from loadtest.h2load import find_h2load
from loadtest.server_process import running_server


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds, with the same bounds.")] = False,
    repository: Annotated[Path, typer.Option(help="Model repository to serve.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
) -> None:
    """Measure throughput, latency and exactness of the server with the embedded engine, compared with plain ONNX
    Runtime."""
    figures = Figures("ghostless bench serve")
    served = find_or_make_model(repository, model, figures.console)
    run = stages.ServeBench(repository, served, find_h2load(), stages.QUICK if quick else stages.FULL, figures)
    run.say(f"model {served.name}, {served.path}")
    stages.measure_starts(run)
    # With default settings, so metrics are on and their cost is included in every figure.
    with running_server(repository) as server, bare_cores(served.path, served.outputs) as cores:
        stages.measure_answers(run, server.address)
        stages.measure_throughput(run, server.address, cores, candidates=256, bound=0.60)
        stages.measure_throughput(run, server.address, cores, candidates=1000, bound=0.70)
        stages.measure_latency(run, server.address)
        stages.measure_perf_analyzer(run, server.address)
    stages.measure_single_candidate(run)
    stages.measure_reload(run)
    figures.finish(json_path)
