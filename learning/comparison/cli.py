"""`ghostless evaluate table` and `ghostless evaluate ablation`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from learning.cli import DataOption, SchemaOption
from learning.comparison import report
from learning.comparison.cache import Reconstruction
from learning.comparison.methods import chosen
from learning.comparison.runner import runner
from learning.comparison.source import Source
from learning.comparison.table import Plan, compare

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

RowsOption = Annotated[int | None, typer.Option(min=1000, help="Take so many rows at random, before the split.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="Networks per method.")]
EpochsOption = Annotated[int, typer.Option(min=1, help="Passes over the training part.")]
JobsOption = Annotated[int, typer.Option(min=1, help="Processes of one thread each.")]
CacheOption = Annotated[Path, typer.Option(help="Where trained networks and figures are kept, to go on from.")]
CachedOption = Annotated[bool, typer.Option("--cached-only", help="Train nothing; report what is there.")]
OutOption = Annotated[Path, typer.Option(help="Folder for the Markdown, the CSV and the pictures.")]
UpdateOption = Annotated[
    Path | None, typer.Option(help="A Markdown page whose marked block of this data is replaced by the new tables.")
]


@app.command()
def table(
    data: DataOption,
    schema: SchemaOption = None,
    methods: Annotated[str, typer.Option(help="all, or a comma-separated list, e.g. qr,qr-vbll,qr-ensemble.")] = "all",
    seeds: SeedsOption = 5,
    epochs: EpochsOption = 5,
    rows: RowsOption = None,
    tune: Annotated[bool, typer.Option(help="Choose each method's setting on validation rows.")] = True,
    reconstruction: Annotated[
        Reconstruction, typer.Option(help="own: as served; paper: QR's quantiles joined by straight lines.")
    ] = "own",
    jobs: JobsOption = 1,
    cache: CacheOption = Path("runs/table"),
    cached_only: CachedOption = False,
    out: OutOption = Path("runs/table"),
    update: UpdateOption = None,
) -> None:
    """Every method on the same data, backbone, loop and tuning budget: quality and cost, mean and deviation over seeds.

    What was trained before is taken from the cache; after a cut the same command goes on.
    """
    console = Console()
    source = Source(data, schema, rows)
    plan = Plan(seeds, epochs, tune, reconstruction)
    with runner(source, cache, console, jobs, cached_only) as running:
        found = compare(running, chosen(methods), plan)
    report.write_table(found, source, plan, out, update, console)


@app.command()
def ablation() -> None:
    """x."""
