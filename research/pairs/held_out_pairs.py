"""The pair test of a trained run: effects fitted to its training part, predictions of its held-out rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ghostless.heads.effects import Codes, EffectRows, Effects, SideColumns
from learning.data.encoding import OUT_OF_VOCABULARY, Encoding, z_key
from learning.data.table import Dataset, Table, sample
from learning.errors import DataError
from learning.evaluation import history_counts
from learning.model import Predict
from learning.trained import TrainedModel
from research.pairs.pair_test import Array, Floats, PairFigure, PairRows, masked_figure, pair_figures

# Of the held-out part, at random.
MOST_ROWS = 100_000
_FIT_ROWS = 65_536
_PREDICT_ROWS = 2048


@dataclass(frozen=True)
class PairTest:
    """figures: by id feature and bucket of history, and "all"; masked: one per feature. priors: t^2 of each id's
    effects; noise: sigma^2; level: Vbar."""

    rows: int
    figures: tuple[PairFigure, ...]
    masked: tuple[PairFigure, ...]
    priors: Mapping[str, float]
    noise: float
    level: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a figure that has no meaning is None."""
        return {
            "rows": self.rows,
            "pairs": [_plain(figure) for figure in self.figures],
            "masked": [_plain(figure) for figure in self.masked],
            "effects": {"priors": dict(self.priors), "noise": self.noise},
            "mean_variance": self.level,
        }


def judge_pairs(trained: TrainedModel, train: Dataset, held_out: Dataset) -> PairTest:
    """train: the part that the networks were fitted to. held_out: rows that fitted nothing."""
    encoding = trained.first.encoding
    if not encoding.schema.id_names:
        raise DataError("the schema has no id feature, so no two rows share an id; the pair test needs one")
    effects = effect_rows(encoding, train).fit()
    table = sample(held_out, MOST_ROWS, 0)
    found = pair_rows(trained.predict, effects, encoding, table)
    level = float(found.total.mean())
    figures = pair_figures(found, level)
    if not figures:
        raise DataError(f"no two of the {table.rows} held-out rows share an id; the pair test needs rows that do")
    masked = [
        masked_figure(pair_rows(trained.predict, effects, encoding, table, (name, *below(effects, name))), name, level)
        for name in effects.names
    ]
    return PairTest(
        rows=table.rows,
        figures=tuple(figures),
        masked=tuple(figure for figure in masked if figure is not None),
        priors=effects.priors,
        noise=effects.noise,
        level=level,
    )


def effect_rows(encoding: Encoding, dataset: Dataset) -> EffectRows:
    """Rows as effects take them: ids, and the bucket and z of every number."""
    ids = encoding.schema.id_names
    numbers = tuple(feature.name for feature in encoding.schema.features if feature.kind != "id")

    def batches() -> Iterator[tuple[Array, SideColumns, Array]]:
        for table in dataset.batches(_FIT_ROWS):
            encoded = encoding.encode(table)
            side = SideColumns(
                _stacked([encoded[name] for name in numbers], table.rows),
                _stacked([encoded[z_key(name)] for name in numbers], table.rows),
            )
            yield _stacked([encoded[name] for name in ids], table.rows), side, table.target

    heights, sizes = ([encoding.cardinality(name) for name in names] for names in (ids, numbers))
    return EffectRows.gather(ids, heights, sizes, len(numbers), dataset.rows, batches())


@torch.no_grad()
def pair_rows(
    predict: Predict, effects: Effects, encoding: Encoding, table: Table, masked: Sequence[str] = ()
) -> PairRows:
    """Predict rows that fitted nothing; `masked` features are sent to their unknown row."""
    names = effects.names
    encoded = encoding.encode(table)
    history = {name: history_counts(encoding, name, encoded[name]) for name in names}
    for name in masked:
        encoded[name] = np.full_like(encoded[name], OUT_OF_VOCABULARY)
    parts: list[Floats] = []
    for start in range(0, table.rows, _PREDICT_ROWS):
        span = slice(start, start + _PREDICT_ROWS)
        predictive = predict({key: torch.from_numpy(values[span]) for key, values in encoded.items()})
        columns = (predictive.mean(), predictive.aleatoric(), predictive.epistemic())
        parts.append(np.stack([column.numpy().astype(np.float64) for column in columns]))
    mean, aleatoric, epistemic = np.concatenate(parts, 1)
    return PairRows(
        residual=table.target - mean,
        total=aleatoric + epistemic,
        epistemic=epistemic,
        parts={name: shared_part(effects, encoded, name) for name in names},
        ids={name: table.columns[name] for name in names},
        history=history,
    )


def shared_part(effects: Effects, codes: Codes, name: str) -> Floats:
    """[n]: c_i of a feature, where rows i and j that share its id have sqrt(c_i c_j) in common by its effect.

    What is below it in a chain has removed a share of it: c = v_f times `carried` of all below.
    """
    part: Floats = effects.variance[name][codes[name]]
    for child in below(effects, name):
        part = part * effects.carried(child)[codes[child]]
    return part


def below(effects: Effects, name: str) -> tuple[str, ...]:
    """The features that belong to `name`, nearest first."""
    child = next((child for child, parent in effects.parents.items() if parent == name), None)
    return () if child is None else (child, *below(effects, child))


def _stacked(columns: list[Array], rows: int) -> Array:
    """[n, columns]."""
    return np.stack(columns, 1) if columns else np.zeros((rows, 0), np.float32)


def _plain(figure: PairFigure) -> dict[str, Any]:
    figures = {
        **asdict(figure),
        "served_ratio": figure.served_ratio,
        "effects_ratio": figure.effects_ratio,
        "verdict": figure.verdict,
    }
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value for name, value in figures.items()
    }
