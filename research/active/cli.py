"""`ghostless active`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ghostless.contract.errors import ConfigError
from ghostless.heads.config import HeadName
from learning.cli import DataOption, SchemaOption
from research.active import report
from research.active.curves import curves
from research.active.loop import StrategyRun
from research.active.setup import Setup
from research.active.strategies import NAMES, parse
from research.comparison.workers import workers

_SETUP = Setup("")
STRATEGIES = "random,hybrid:0.1,epistemic,bald-vbll,bald-mcd,total"


def active(
    data: DataOption,
    schema: SchemaOption = None,
    strategies: Annotated[
        str,
        typer.Option(
            help=f"Strategies to compare, comma-separated: {NAMES}. Each picks the rows with the highest scores; with "
            "+power after its name it draws them in proportion to their scores."
        ),
    ] = STRATEGIES,
    head: Annotated[HeadName, typer.Option(help="Head of the model that is trained at every step.")] = _SETUP.head,
    seeds: Annotated[int, typer.Option(min=1, help="Number of repetitions, each with a different data split.")] = 3,
    pool_rows: Annotated[int, typer.Option(min=0, help="Random rows in the pool; 0 means all.")] = _SETUP.pool_rows,
    test_rows: Annotated[int, typer.Option(min=1, help="Maximum number of rows to evaluate on.")] = _SETUP.test_rows,
    start: Annotated[float, typer.Option(help="Fraction of the pool labelled at the start.")] = _SETUP.start,
    stop: Annotated[float, typer.Option(help="Fraction of the pool labelled at the end.")] = _SETUP.stop,
    step: Annotated[float, typer.Option(help="Fraction of the pool labelled at each step.")] = _SETUP.step,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Passes over the labelled rows. Default: the step budget of `ghostless train`."),
    ] = _SETUP.epochs,
    batch_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows per training step. Default: as `ghostless train`.")
    ] = _SETUP.batch_rows,
    cold: Annotated[
        int, typer.Option(min=0, help="Users with at most this many pool rows count as cold.")
    ] = _SETUP.cold,
    jobs: Annotated[int, typer.Option(min=1, help="Parallel processes, with one thread each.")] = 1,
    cache: Annotated[Path, typer.Option(help="Folder of finished steps, to resume from.")] = Path("runs/active"),
    cached_only: Annotated[bool, typer.Option("--cached-only", help="Train nothing; report cached results.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the report, CSV file and plot.")] = Path("runs/active"),
) -> None:
    """Compare active-learning strategies: model quality by number of labels.

    Every strategy of a seed starts from the same random labels and trains the same model from scratch at every step.
    Finished steps are cached; after an interruption, the same command resumes.
    """
    console = Console()
    chosen = [parse(name.strip()) for name in strategies.split(",") if name.strip()]
    if not chosen:
        raise ConfigError(f"--strategies is empty; expected some of {NAMES}")
    setup = Setup(data, str(schema or ""), head, pool_rows, test_rows, start, stop, step, epochs, batch_rows, cold)
    folder = setup.folder(cache)
    ends = [StrategyRun(setup, folder, name, "top", seed) for name in ("start", "full") for seed in range(seeds)]
    runs = [StrategyRun(setup, folder, name, batch, seed) for seed in range(seeds) for name, batch in chosen]
    if not cached_only:
        with workers(jobs) as perform, _progress(console) as bar:
            for title, part in (("first and last models", ends), (f"{setup.name} {head}", runs)):
                missing = [run for run in part if not run.done]
                task = bar.add_task(title, total=len(missing))

                def done(run: StrategyRun, task: object = task) -> None:
                    bar.advance(task)  # type: ignore[arg-type]  # a TaskID, which only exists as a type
                    bar.console.print(f"{run.label} seed {run.seed}: NLL {run.steps()[-1].nll:.4f}", highlight=False)

                perform(missing, done)
    found = curves([*runs, *(end for end in ends if end.strategy == "full")])
    if not found:
        raise ConfigError(f"{folder}: no finished runs; run without --cached-only to create some")
    files = report.write(found, setup, round(found[0].steps[0][0].labels / found[0].steps[0][0].share), out)
    console.print(Markdown(files[0].read_text()))
    for file in files:
        console.print(f"wrote {file}")


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)
