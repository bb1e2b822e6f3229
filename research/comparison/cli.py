"""`ghostless evaluate table`, `ablation` and `ghost`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from ghostless.heads.predictive import Predictive
from learning import cli as learning_cli
from learning.cli import DataOption, SchemaOption
from learning.metrics import Metrics
from research.comparison import ghost, pictures, report
from research.comparison.ablations import ablate, variants_of
from research.comparison.boosted import boosted_row
from research.comparison.cache import Reconstruction
from research.comparison.methods import BOOSTED, chosen
from research.comparison.results import MethodResult
from research.comparison.runner import runner
from research.comparison.source import Source
from research.comparison.table import TablePlan, compare

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

RowsOption = Annotated[int | None, typer.Option(min=1000, help="Use only this many random rows of the data.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="Number of networks to train per method.")]
EpochsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Passes over the training rows. Default: the step budget of `ghostless train`."),
]
JobsOption = Annotated[int, typer.Option(min=1, help="Parallel processes, with one thread each.")]
CacheOption = Annotated[Path, typer.Option(help="Folder of trained networks and results, to resume from.")]
CachedOption = Annotated[bool, typer.Option("--cached-only", help="Train nothing; report cached results.")]
OutOption = Annotated[Path, typer.Option(help="Folder for the report, CSV file and plots.")]
UpdateOption = Annotated[
    Path | None, typer.Option(help="Markdown page to update: the block marked for this data gets the new tables.")
]


@app.command()
def table(
    data: DataOption,
    schema: SchemaOption = None,
    methods: Annotated[str, typer.Option(help="Methods to compare: all, or for example qr,qr-vbll,lightgbm.")] = "all",
    seeds: SeedsOption = 5,
    epochs: EpochsOption = None,
    rows: RowsOption = None,
    tune: Annotated[bool, typer.Option(help="Tune each method's settings on validation rows.")] = True,
    reconstruction: Annotated[
        Reconstruction,
        typer.Option(help="Distribution to evaluate. own: as served; paper: linear between QR's quantiles."),
    ] = "own",
    jobs: JobsOption = 1,
    cache: CacheOption = Path("runs/table"),
    cached_only: CachedOption = False,
    out: OutOption = Path("runs/table"),
    update: UpdateOption = None,
) -> None:
    """Compare all methods on the same data, backbone, training loop and tuning budget.

    Networks have the paper's uniform bins and no calibration map, and stop early by their loss on validation rows.
    LightGBM is included without tuning. Reports quality and cost as mean and standard deviation over seeds. Trained
    networks are cached, so repeating an interrupted command resumes it.
    """
    console = Console()
    source = Source(data, schema, rows)
    plan = TablePlan(seeds, epochs, tune, reconstruction)
    with runner(source, cache, console, jobs, cached_only) as running:
        wanted = chosen(methods)
        found = compare(running, [method for method in wanted if method is not BOOSTED], plan)
        if BOOSTED in wanted:
            found.append(boosted_row(source.parts(), running.cache.root, seeds, cached_only))
    name = source.name if reconstruction == "own" else f"{source.name}-{reconstruction}"
    sections = [report.table_markdown(found, source.name), report.claims_markdown(found), report.tuning_markdown(found)]
    picture = _folder(out, update) / f"results_{name}.png"
    if any(row.runs for row in found):
        pictures.draw_table(found, picture, source.name)
    _write(Written(name, sections, found, picture), out, update, console)


@app.command()
def ablation(
    name: Annotated[str, typer.Argument(help="Ablation: backbone, resolution, covariance or regularisation.")],
    data: DataOption,
    schema: SchemaOption = None,
    seeds: SeedsOption = 1,
    epochs: EpochsOption = None,
    rows: RowsOption = None,
    jobs: JobsOption = 1,
    cache: CacheOption = Path("runs/table"),
    cached_only: CachedOption = False,
    out: OutOption = Path("runs/table"),
    update: UpdateOption = None,
) -> None:
    """Vary one design choice and leave every other option at its default.

    backbone: cross, sn+cross, sn, sn+raw and spectral-residual. resolution: number of bins and quantile levels.
    covariance: structure and rank of the posterior covariance, with its cost. regularisation: NLL per epoch (5 epochs
    unless --epochs is set) with and without regularisation of the embeddings.
    """
    console = Console()
    source = Source(data, schema, rows)
    variants = variants_of(name)
    with runner(source, cache, console, jobs, cached_only) as running:
        found = ablate(running, variants, seeds, epochs)
    block = f"{name}-{source.name}"
    sections, picture = [report.ablation_markdown(found)], None
    if any(result.curve for result in found):
        sections.append(report.curves_markdown(found))
        picture = _folder(out, update) / f"results_{block}.png"
        pictures.draw_curves(found, picture, source.name)
    _write(Written(block, sections, found, picture), out, update, console)


@app.command("ghost")
def ghost_value(out: OutOption = Path("runs/table"), update: UpdateOption = None) -> None:
    """Show which methods predict a value that never occurs, by training all of them on a bimodal toy problem."""
    console = Console()
    found: dict[str, Predictive] = {}
    lines: list[list[str]] = []

    def show(name: str, predictive: Predictive, figures: Metrics) -> None:
        found[name] = predictive
        shares = [f"{ghost.ghost_mass(predictive):.3f}", f"{predictive.mean().item():.3f}"]
        lines.append([name, *shares, f"{figures.nll:.4f}", f"{figures.crps:.4f}"])
        console.print(f"{name}: {shares[0]} of its mass between the modes", highlight=False)

    ghost.measure(show)
    table_text = report.markdown(["method", "mass between the modes", "mean at x = 0", "NLL", "CRPS"], lines)
    picture = _folder(out, update) / "results_ghost.png"
    ghost.draw(found, picture)
    _write(Written("ghost", [table_text], [], picture), out, update, console)


def evaluate(words: list[str]) -> Any:
    """Runs `ghostless evaluate` with its arguments: one of these commands, or the evaluation of a run."""
    return app if words and words[0] in ("table", "ablation", "ghost", "pairs") else learning_cli.evaluate


@dataclass(frozen=True)
class Written:
    """The results of a command: name of the block on a page, its tables, the figures of every run, and a chart."""

    name: str
    sections: Sequence[str]
    results: Sequence[MethodResult]
    picture: Path | None


def _folder(out: Path, update: Path | None) -> Path:
    """Charts are stored next to the page."""
    folder = out if update is None else update.parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(written: Written, out: Path, update: Path | None, console: Console) -> None:
    out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(written.sections)
    if update is not None:
        link = "" if written.picture is None else f"\n![{written.name}](images/{written.picture.name})\n"
        report.update_page(update, written.name, text + link)
    (out / f"{written.name}.md").write_text(text)
    console.print(Markdown(text))
    files = [out / f"{written.name}.md", written.picture, update]
    if written.results:
        report.write_csv(written.results, out / f"{written.name}.csv")
        files.append(out / f"{written.name}.csv")
    console.print(
        "wrote " + ", ".join(str(file) for file in files if file is not None), highlight=False, soft_wrap=True
    )
