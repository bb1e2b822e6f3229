"""`ghostless loadtest compare`."""

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from loadtest.compare import measure, trained_models, triton_ensemble
from loadtest.compare.cores import split_cores
from loadtest.compare.findings import Comparison
from loadtest.compare.rounds import Settings
from loadtest.report.cost import Prices, size_fleet
from loadtest.report.files import write_report
from loadtest.report.options import DEFAULTS, CoreHour, GbHour, Peak, Utilisation
from loadtest.report.tables import advantage, ordered
from loadtest.report.wording import plural

FOLDER = Path("runs/loadtest")
FULL = Settings()
QUICK = Settings(round_s=1.0, round_turns=4, probe_s=1.0, search_steps=2, engine_round_s=0.15)


def compare(
    out: Annotated[Path, typer.Option(help="Directory for report.html, report.json and the plots.")] = FOLDER
    / "report",
    engine: Annotated[
        Literal["embedded", "triton"], typer.Option(help="Inference engine of the servers.")
    ] = FULL.engine,
    candidates: Annotated[int, typer.Option(min=1, help="Candidates per request.")] = FULL.candidates,
    objective_ms: Annotated[float, typer.Option(help="Latency objective: maximum p99 in ms.")] = FULL.objective_ms,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which all variants take turns.")] = FULL.rounds,
    round_s: Annotated[float, typer.Option(help="Seconds at full load per variant and round.")] = FULL.round_s,
    probe_s: Annotated[float, typer.Option(help="Seconds of load at each request rate tried.")] = FULL.probe_s,
    server_cores: Annotated[
        int, typer.Option(help="Cores for the server; the load generator gets the rest. 0 means half.")
    ] = 0,
    folder: Annotated[Path, typer.Option(help="Folder for the trained and exported variants.")] = FOLDER,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds and try fewer request rates.")] = False,
    core_hour: CoreHour = DEFAULTS.core_hour,
    gb_hour: GbHour = DEFAULTS.gb_hour,
    peak: Peak = DEFAULTS.peak_per_s,
    utilisation: Utilisation = DEFAULTS.utilisation,
) -> None:
    """Serve every variant (deterministic, VBLL, 5x ensembles, MC-dropout) and compare throughput, latency and cost.

    Trains and exports missing variants (half a minute), starts a server for each one on loopback, sends load to them
    in turn, and writes an HTML report.
    """
    prices = Prices(core_hour, gb_hour, peak, utilisation)
    settings = replace(QUICK if quick else FULL, engine=engine, candidates=candidates, objective_ms=objective_ms)
    if not quick:
        settings = replace(settings, rounds=rounds, round_s=round_s, probe_s=probe_s)
    console = Console(highlight=False, soft_wrap=True)
    found = run_comparison(settings, folder, server_cores, progress_printer(console))
    page = write_report(found, prices, out)
    console.print(summary(found, prices))
    console.print(f"wrote {page}, report.json and the pictures beside it")


def run_comparison(settings: Settings, folder: Path, server_cores: int, say: Callable[[str], None]) -> Comparison:
    """Run the whole comparison: train and export what is missing, start the servers, put load on them."""
    cores = split_cores(server_cores)
    variants = trained_models.prepare(folder, len(cores.server), say)
    if settings.engine == "triton":
        variants = triton_ensemble.add(variants, folder, len(cores.server))
    command = shlex.join(["ghostless", *sys.argv[1:]])
    return measure.compare(variants, settings, cores, folder / "logs", command, say)


def progress_printer(console: Console) -> Callable[[str], None]:
    """A function that prints a line, prefixed with the seconds since the start."""
    began = time.monotonic()
    return lambda text: console.print(f"[dim]{time.monotonic() - began:5.0f} s[/]  {text}")


def summary(found: Comparison, prices: Prices) -> Table:
    where = f"server on {plural(found.server_cores, 'core')}, {found.engine} engine"
    title = f"{plural(found.candidates, 'candidate')} per request, {where}"
    # Without rules between columns, so that the numbers fit into 80 characters.
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    objective = f"req/s, p99 <= {found.objective_ms:g} ms"
    for heading in ("variant", "req/s", "VBLL / variant", objective, "CPU s/1M rows", "MB", "$ per month"):
        table.add_column(heading, justify="left" if heading == "variant" else "right", no_wrap=heading == "variant")
    for each in ordered(found):
        fleet, times = size_fleet(each, found, prices), advantage(found, each)
        table.add_row(
            each.title,
            f"{each.throughput_per_s:,.0f}",
            f"{times:.2f}x" if times else "",
            f"{each.rate_at_objective:,.0f}",
            f"{each.cpu_s:.2f}",
            f"{each.resident_mb:,.0f}",
            f"{fleet.per_month:,.0f}" if fleet else "",
        )
    return table
