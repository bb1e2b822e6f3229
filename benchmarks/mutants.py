"""`ghostless bench mutants`: does the verification of exports detect wrong closed forms?"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from benchmarks.graph import graphs
from export import mutants, options
from export.graph import Networks
from export.options import ExportOptions
from ghostless.heads.calibration import Calibration
from learning.config import ModelConfig, TrainConfig
from learning.data.load import load
from learning.data.table import sample
from learning.trained import TrainedModel
from learning.training import Trainer
from loadtest.figures import Figures

ROWS = 20_000
STEPS = 100
ATOM = 1.25
# So far from 1 that a wrong temperature changes bin probabilities by more than the sampling error. QR has none.
TEMPERATURE = {"cr": 1.3, "qr": 1.0}


def bench(
    run: Annotated[
        Path | None, typer.Argument(help="Run folder of `ghostless train`. Default: a small network of each head.")
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
) -> None:
    """Inject known faults into exported graphs and print which export check catches each one.

    Checks that are independent of torch are listed first: torch computes the same closed forms, so a comparison with
    it cannot find a fault in a formula.
    """
    figures = Figures("ghostless bench mutants")
    for title, networks in _models(figures, run).items():
        layout = options.resolve(ExportOptions(), networks.first, bool(networks.weights), networks.calibration)
        table = Table("mutant", "caught by", "checks that fail", title=title, title_justify="left")
        for found in mutants.survey(networks, layout):
            name = f"{title}: {found.name}"
            if found.name == mutants.HONEST:
                figures.add(f"{name}: checks that fail", len(found.failed), "== 0")
            elif not found.applies:
                figures.skip(name, "this fault does not apply to this model")
            else:
                figures.add(f"{name}: checks that fail", len(found.failed), ">= 1")
                table.add_row(found.name, found.failed[0] if found.failed else "-", str(len(found.failed)))
        figures.console.print(table)
    figures.finish(json_path)


def _models(figures: Figures, run: Path | None) -> dict[str, Networks]:
    if run is not None:
        trained = TrainedModel.load(run)
        return {trained.head: Networks.trained(trained)}
    made: dict[str, Networks] = {}
    table = sample(load(f"synthetic:{ROWS}"), ROWS, 0)
    # A tenth of the rows have the same value, an atom.
    target = np.where(np.arange(ROWS) % 10 == 0, ATOM, table.target).astype(np.float32)
    for head in graphs.HEADS:
        figures.console.print(f"[dim]{head}: training a small network[/]")
        config = TrainConfig(steps=STEPS, calibration=0.0)
        checkpoint = Trainer(replace(table, target=target), "with an atom", ModelConfig(head=head), config).run()
        checkpoint.model.head.calibration = Calibration(TEMPERATURE[head], graphs.MAP)
        made[head] = Networks.ensemble([checkpoint])
    return made
