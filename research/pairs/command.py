"""`ghostless evaluate pairs`."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from ghostless.contract.errors import ConfigError
from learning import training
from learning.cli import JsonOption, SchemaOption
from learning.data.load import load
from learning.errors import CheckpointError
from learning.trained import TrainedModel
from research.pairs.held_out_pairs import PairTest, judge_pairs
from research.pairs.pair_chart import draw_pairs
from research.pairs.pair_test import PairFigure


def pairs(
    run: Annotated[Path, typer.Argument(help="A run's directory or checkpoint file.")],
    data: Annotated[
        str | None, typer.Option(help="Where the run's own data is now, if it was moved (as for train).")
    ] = None,
    schema: SchemaOption = None,
    plots: Annotated[Path | None, typer.Option(help="Directory for a PNG picture, pairs.png.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the served epistemic variance against held-out pairs of rows that share an id.

    measured: mean product of two rows' residuals, the variance of the error they share. served: mean sqrt(e_i e_j) of
    the model's epistemic variance, the most they can share by it. effects: variance of the shared ids' effects, fitted
    to the training part. Ratios are to measured. History: training rows of the id. masked: the id sent as unknown.
    """
    console = Console(stderr=as_json)
    trained = TrainedModel.load(run)
    checkpoint = trained.first
    dataset = load(data or checkpoint.data, schema, target=checkpoint.schema.target)
    if dataset.fingerprint() != checkpoint.fingerprint:
        raise CheckpointError(
            f"{data or checkpoint.data} is not the data that {run} was trained on; the pair test needs its training "
            "and held-out parts, so give the same data"
        )
    parts = training.split(dataset, checkpoint.train_config)
    if parts.test is None:
        raise ConfigError(f"{run} was trained with --test 0 and held nothing out; train with --test 0.2")
    found = judge_pairs(trained, parts.train, parts.test)
    file = None
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        file = draw_pairs(found.figures, plots / "pairs.png", f"{trained.head.upper()}: error that rows of an id share")
    if as_json:
        print(json.dumps({**found.to_dict(), "plots": [] if file is None else [str(file)]}))
        return
    for name in found.priors:
        console.print(_table(found, name))
    if file is not None:
        console.print(f"wrote {file}", highlight=False, soft_wrap=True)


def _table(found: PairTest, name: str) -> RichTable:
    """Of one id feature, by history."""
    title = f"{name}, pairs of {found.rows:,} held-out rows; prior variance of its effects {found.priors[name]:.3g}"
    table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("history")
    for heading in ("pairs", "measured", "+-", "served", "effects", "served\nratio", "effects\nratio"):
        table.add_column(heading, justify="right")
    table.add_column("served is")
    for figure in (*found.figures, *found.masked):
        if figure.feature == name:
            table.add_row(*_cells(figure))
    return table


def _cells(figure: PairFigure) -> list[str]:
    variances = (figure.measured, figure.error, figure.served, figure.effects)
    ratios = (figure.served_ratio, figure.effects_ratio)
    return [
        figure.history,
        f"{figure.pairs:,}",
        *(f"{value:.5f}" if value == 0 or abs(value) >= 1e-4 else f"{value:.1e}" for value in variances),
        *(f"{ratio:.3f}" if np.isfinite(ratio) else "-" for ratio in ratios),
        figure.verdict,
    ]
