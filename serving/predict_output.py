"""A prediction as a table for people or as JSON for scripts."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from serving.client import Model, Prediction
from serving.predict_input import Query


def ranked(prediction: Prediction) -> list[int]:
    """Candidate indexes, best first; as they came where the server ranked none."""
    return list(range(prediction.rows)) if prediction.ranking is None else prediction.ranking.tolist()


def prediction_table(prediction: Prediction, query: Query, model: Model, thresholds: Sequence[float]) -> Table:
    unit = f" [{model.target.unit}]" if model.target.unit else ""
    served = f"{prediction.model} version {prediction.version}"
    title = f"{served}: {model.target.name}{unit}, {prediction.rows} candidates"
    # Escaped: rich would read the unit's brackets as markup.
    table = Table(title=title.replace("[", r"\["), title_justify="left")
    table.add_column("rank", justify="right")
    for name in query.candidates:
        table.add_column(name, justify="right", style="cyan")
    measures = list(_measures(prediction, thresholds))
    for heading, _ in measures:
        table.add_column(heading, justify="right")
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
    if prediction.aleatoric is not None:
        yield "aleatoric sd", np.sqrt(prediction.aleatoric)
    if prediction.epistemic is not None:
        yield "epistemic sd", np.sqrt(prediction.epistemic)
    if prediction.exceedance is not None:
        for j, threshold in enumerate(thresholds):
            yield f"P(>{threshold:g})", prediction.exceedance[:, j]
    if prediction.score is not None:
        yield "score", prediction.score


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def prediction_json(prediction: Prediction) -> str:
    """Every field that is there; matrices as lists of rows."""
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
