"""Shows the progress of `ghostless train` and `ghostless fit`, and evaluates, saves and prints their result."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from learning import evaluation, training
from learning.checkpoint import Checkpoint
from learning.config import FROZEN
from learning.data.table import Dataset
from learning.evaluation import Evaluation
from learning.own import torch_ranker
from learning.own.model import TorchRankerModel
from learning.pair_report import pair_tables
from learning.target_notes import target_notes
from learning.trained import TrainedModel


def run_with_progress(trainer: training.Trainer, title: str, console: Console) -> Checkpoint:
    """Train to the end, with a progress bar in the first process."""
    with _progress(console, disable=trainer.shard.rank != 0) as bar:
        task = bar.add_task(title, total=None, loss="")

        def show(step: training.Progress) -> None:
            if step.validation_loss is not None:
                bar.console.print(f"step {step.step}: loss on held-out rows {step.validation_loss:.5f}")
            else:
                bar.update(task, total=step.steps, completed=step.step, loss=f"loss {step.loss:.4f}")

        return trainer.run(show)


def conclude(
    trained: TrainedModel,
    dataset: Dataset,
    out: Path,
    console: Console,
    title: str,
    as_json: bool,
    more_notes: list[str] | None = None,
) -> None:
    """Judge a model on its test part, run the pair test, save the figures with the model and print them."""
    figures = dict(trained.metrics)
    held_out = training.split(dataset, trained.first.train_config).test
    if held_out is not None:
        figures.update(judge(trained, held_out)[1])
    # Without a test part, use the calibration rows, although they chose the rank and scale of the effects.
    judged = held_out if held_out is not None else trained.first.calibration
    pairs = None if judged is None else trained.judge_pairs(judged)
    replace(trained, metrics=figures, pairs=pairs).save(out)
    notes = target_notes(trained.first, dataset.clipped)
    network = trained.first.network
    if isinstance(network, TorchRankerModel):
        notes += filter(None, [torch_ranker.distance_note(network.config.own, network.ranker)])
    if trained.first.model_config.own == FROZEN:
        notes.append(torch_ranker.distance_note("the frozen ranker", None))
    notes += more_notes or []
    for note in notes:
        console.print(note)
    chosen = {
        "checkpoint": str(out),
        "head": trained.head,
        "clipped": dataset.clipped,
        "notes": notes,
        "pairs": None if pairs is None else pairs.to_dict(),
    }
    print_figures(console, title, figures, as_json, chosen)
    if pairs is not None and not as_json:
        for table in pair_tables(pairs):
            console.print(table)
        console.print(f"pair test of the epistemic variance: {pairs.verdict}")


def judge(trained: TrainedModel, dataset: Dataset) -> tuple[Evaluation, dict[str, float]]:
    """Predictions for a dataset, and their metrics."""
    judged = replace(evaluation.evaluate(trained.first, dataset, trained.predict), head=trained.head)
    return judged, judged.metrics().to_dict()


def print_figures(console: Console, title: str, figures: dict[str, Any], as_json: bool, extra: dict[str, Any]) -> None:
    """Print figures as a table, or together with `extra` as one JSON object on stdout."""
    if as_json:
        print(json.dumps({**figures, **extra}))
        return
    table = RichTable("figure", "value", title=title, title_justify="left")
    for name, value in figures.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.5f}")
    console.print(table)


def _progress(console: Console, disable: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    return Progress(*columns, TimeElapsedColumn(), console=console, disable=disable)
