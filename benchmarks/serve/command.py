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
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter rounds, the same bounds.")] = False,
    repository: Annotated[Path, typer.Option(help="Repository with an exported model.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Its model; the first by name if not given.")] = "",
) -> None:
    """Throughput, latency and exactness of the facade on the embedded engine, beside bare ONNX Runtime."""
    figures = Figures("ghostless bench serve")
    served = find_or_make_model(repository, model, figures.console)
    run = stages.ServeBench(repository, served, find_h2load(), stages.QUICK if quick else stages.FULL, figures)
    run.say(f"model {served.name}, {served.path}")
    stages.measure_starts(run)
    # With default settings, so metrics are on: what observing costs is in every figure.
    with running_server(repository) as server, bare_cores(served.path, served.outputs) as cores:
        stages.measure_answers(run, server.address)
        stages.measure_throughput(run, server.address, cores, candidates=256, bound=0.60)
        stages.measure_throughput(run, server.address, cores, candidates=1000, bound=0.70)
        stages.measure_latency(run, server.address)
        stages.measure_perf_analyzer(run, server.address)
    stages.measure_single_candidate(run)
    stages.measure_reload(run)
    figures.finish(json_path)
