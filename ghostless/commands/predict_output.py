"""Prints a prediction as a table for people or as JSON for scripts."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ghostless.client import Model, Prediction
from ghostless.commands.predict_input import PredictInput


def ranked(prediction: Prediction) -> list[int]:
    """Candidate indexes, best first; in the original order if the server did not rank them."""
    return list(range(prediction.rows)) if prediction.ranking is None else prediction.ranking.tolist()


def print_table(table: Table) -> None:
    """Print at full width: on a narrow terminal, wrapped lines are better than truncated numbers."""
    console = Console()
    width = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    Console(width=max(width, console.width)).print(table)


def prediction_table(prediction: Prediction, query: PredictInput, model: Model, thresholds: Sequence[float]) -> Table:
    # "1" stands for a ratio without a unit.
    unit = f" ({model.target.unit})" if model.target.unit not in ("", "1") else ""
    served = f"{prediction.model} version {prediction.version}"
    title = f"{served}: {model.target.name}{unit}, {prediction.rows} candidates"
    # Without rules between columns, the usual columns fit into 80 characters.
    table = Table(title=Text(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("rank", justify="right", no_wrap=True)
    for name in query.candidates:
        table.add_column(Text(name), justify="right", style="cyan", no_wrap=True)
    measures = list(_measures(prediction, thresholds))
    for heading, _ in measures:
        table.add_column(heading, justify="right", no_wrap=True)
    for rank, row in enumerate(ranked(prediction), start=1):
        features = [_shown(values[row]) for values in query.candidates.values()]
        table.add_row(str(rank), *features, *(f"{values[row]:.4g}" for _, values in measures))
    return table


def _measures(prediction: Prediction, thresholds: Sequence[float]) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    if prediction.mean is not None:
        yield "mean", prediction.mean
    if prediction.levels is not None and prediction.quantiles is not None:
        for j, level in enumerate(prediction.levels.tolist()):
            yield f"{100 * level:.4g}%", prediction.quantiles[:, j]
    if prediction.atoms is not None and prediction.atom_probabilities is not None:
        for j, value in enumerate(prediction.atoms.tolist()):
            yield f"P(={value:.4g})", prediction.atom_probabilities[:, j]
    if prediction.aleatoric is not None:
        yield "aleatoric\nsd", np.sqrt(prediction.aleatoric)
    if prediction.epistemic is not None:
        yield "epistemic\nsd", np.sqrt(prediction.epistemic)
    if prediction.exceedance is not None:
        for j, threshold in enumerate(thresholds):
            yield f"P(>{threshold:g})", prediction.exceedance[:, j]
    by_mean = (
        prediction.mean is not None
        and prediction.score is not None
        and np.array_equal(prediction.score, prediction.mean)
    )
    if prediction.score is not None and not by_mean:
        yield "score", prediction.score


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def prediction_json(prediction: Prediction) -> str:
    """All fields that are present; matrices as lists of rows."""
    shown = {}
    for field in fields(prediction):
        value = getattr(prediction, field.name)
        if value is not None:
            shown[field.name] = _plain(value) if isinstance(value, np.ndarray) else value
    return json.dumps(shown)


def _plain(array: npt.NDArray[Any]) -> Any:
    if array.ndim > 1:
        return [_plain(row) for row in array]
    # The shortest digits that give the same float32 back: 0.1, not 0.10000000149011612.
    return array.tolist() if array.dtype.kind != "f" else [float(str(value)) for value in array]
