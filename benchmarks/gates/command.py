"""`ghostless bench gates`."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from benchmarks.gates import conformance, hostile
from benchmarks.gates.cost import measure_cost
from benchmarks.gates.foreign_clients import measure_foreign_clients
from benchmarks.gates.gates_bench import FULL, QUICK, GatesBench, make_authority
from benchmarks.gates.overload import measure_overload
from benchmarks.gates.refusals import measure_refusals
from benchmarks.gates.reload import measure_reload
from benchmarks.gates.token_timing import measure_token_timing
from ghostless.contract.errors import ConfigError
from loadtest.figures import Figures
from loadtest.h2load import find_h2load


def measure_conformance(bench: GatesBench) -> None:
    conformance.measure_conformance(bench.figures)


def measure_hostile_clients(bench: GatesBench) -> None:
    hostile.measure_hostile(bench)


# The stages in the order in which they run; each adds its figures.
STAGES: dict[str, Callable[[GatesBench], None]] = {
    "cost": measure_cost,
    "reload": measure_reload,
    "refusals": measure_refusals,
    "timing": measure_token_timing,
    "overload": measure_overload,
    "foreign": measure_foreign_clients,
    "conformance": measure_conformance,
    "hostile": measure_hostile_clients,
}


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds, with the same bounds.")] = False,
    stage: Annotated[
        list[str] | None, typer.Option(help=f"Run only this stage; repeat for several: {', '.join(STAGES)}.")
    ] = None,
    repository: Annotated[Path, typer.Option(help="Model repository to serve.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
) -> None:
    """Measure what TLS and identities cost, check what they refuse, and attack the server with hostile clients."""
    unknown = [name for name in stage or () if name not in STAGES]
    if unknown:
        raise ConfigError(f"no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    figures = Figures("ghostless bench gates")
    served = find_or_make_model(repository, model, figures.console)
    with tempfile.TemporaryDirectory() as folder:
        plan = QUICK if quick else FULL
        authority = make_authority(Path(folder))
        run = GatesBench(repository, served, find_h2load(), plan, figures, Path(folder), authority)
        for name in stage or STAGES:
            STAGES[name](run)
    figures.finish(json_path)
