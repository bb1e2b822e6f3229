"""`ghostless bench peers`."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model, stored_repository
from benchmarks.peers import judgement
from benchmarks.peers.rounds import FULL, QUICK, Comparison, Measured, Plan
from benchmarks.peers.servers import GHOSTLESS, GRPC_SERVERS, TRITON, UVICORN, Peer, Target
from ghostless.contract.errors import ConfigError
from loadtest.figures import Figures
from loadtest.h2load import find_h2load
from loadtest.workload import find_model
from serving.engines.triton.local_server import find_binary


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds, with the same bounds.")] = False,
    repository: Annotated[
        Path, typer.Option(help="Model repository with the current graph, measured after the reference graph.")
    ] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
) -> None:
    """Compare a request's cost on this server with bare ONNX Runtime, hand-written servers and Triton.

    All run one graph, the demo of commit fd7b8c1, with the same ONNX Runtime options, under h2load with 8 connections
    and requests of 1, 256 and 1000 rows, in turns of half a second. CPU is that of the server's processes. Hand-written
    servers run with 1 or 2 processes, whichever serves more requests/s. Afterwards bare ONNX Runtime and this server
    are measured on the current demo.
    """
    figures = Figures("ghostless bench peers")
    present = find_or_make_model(repository, model, figures.console)
    h2load, plan = find_h2load(), QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        stored = stored_repository(root)
        reference = Target(stored, find_model(stored, "demo"), root, h2load)
        peers = [GHOSTLESS, UVICORN, *GRPC_SERVERS, *_triton(figures)]
        measured = _measure(figures, "reference graph (demo of fd7b8c1)", reference, peers, plan)
        judgement.judge_overhead(figures, measured)
        judgement.judge_peers(figures, peers, measured)
        judgement.judge_mean_only(figures, measured)
        target = Target(repository, present, root, h2load)
        of_present = _measure(figures, f"present graph ({present.path})", target, [GHOSTLESS], plan)
        judgement.judge_present(figures, of_present, measured)
    figures.finish(json_path)


def _triton(figures: Figures) -> Sequence[Peer]:
    try:
        find_binary()
    except ConfigError as error:
        figures.skip(TRITON.name, str(error))
        return ()
    return (TRITON,)


def _measure(figures: Figures, name: str, target: Target, peers: Sequence[Peer], plan: Plan) -> list[Measured]:
    def say(text: str) -> None:
        figures.console.print(text, highlight=False, soft_wrap=True)

    say(f"{name}: {plan.rounds} rounds of {plan.slices} slices of {plan.slice_s:g} s")
    comparison = Comparison(target, peers, plan, say)
    measured = comparison.run()
    figures.console.print(judgement.table(name, peers, comparison.best, measured))
    return measured
