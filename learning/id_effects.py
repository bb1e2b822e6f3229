"""Fits the effects of a run's ids to its training part, chooses the rank of their factors on rows that training never
saw, and tests the effects.

Theory: ghostless.heads.effects and factors. Use in the split of the variance: ghostless.heads.effect_variance. Scale of
the effects: learning.effect_size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ghostless.contract.pair_test import (
    Array,
    Floats,
    PairFigure,
    PairRows,
    PairTest,
    masked_figure,
    pair_figures,
)
from ghostless.heads.effect_variance import EffectVariance
from ghostless.heads.effects import Codes, EffectRows, Effects, SideColumns
from ghostless.heads.factors import Factors, fit_factors
from learning.data.encoding import Encoding, z_key
from learning.data.table import Dataset, Table, sample
from learning.model import Predict

# Ranks to try for the factors, in this order, as long as each predicts held-out rows better than the one before.
RANKS = (2, 4, 8)
# Number of standard errors by which a rank must be better than the one before.
WORTH_ERRORS = 2.0
# Maximum number of random rows of a held-out part for the pair test.
MOST_PAIR_ROWS = 100_000
# Maximum number of values of a category in the side regression of the effects, whose cost is quadratic in this number.
MOST_CATEGORIES = 1000
_FIT_ROWS = 65_536
_PREDICT_ROWS = 2048


def fit_effects(encoding: Encoding, rows: EffectRows, held_out: Table | None) -> EffectVariance:
    """Effects of the ids in the training rows. held_out: rows for choosing the rank."""
    effects = rows.fit()
    context = frozenset(feature.name for feature in encoding.schema.features if feature.role == "context")
    factors = None
    pair = factor_pair(encoding, effects)
    if pair is not None and held_out is not None and held_out.rows:
        factors = choose_factors(rows, effects, effect_rows(encoding, held_out), pair)
    return EffectVariance(effects, context.intersection(effects.names), factors)


def factor_pair(encoding: Encoding, effects: Effects) -> tuple[str, str] | None:
    """The two id features with factors: the context feature and the candidate feature with the most ids. None if one of
    them is missing or nested in the other."""
    features = [feature for feature in encoding.schema.features if feature.kind == "id"]
    largest = [
        max(
            (feature.name for feature in features if feature.role == role),
            key=encoding.cardinality,
            default=None,
        )
        for role in ("context", "candidate")
    ]
    first, second = largest
    if first is None or second is None or second in effects.below(first) or first in effects.below(second):
        return None
    return first, second


def choose_factors(rows: EffectRows, effects: Effects, held_out: EffectRows, pair: tuple[str, str]) -> Factors | None:
    """Try ranks in increasing order, and return the factors of the last one that predicts held-out rows significantly
    better than the one before; None if even the first does not."""
    codes = held_out.codes_by_name()
    fitted = held_out.fitted(effects)
    rest = fitted - sum(effects.mean[name][codes[name]] for name in pair)
    residual = held_out.y - fitted
    chosen: Factors | None = None
    for rank in RANKS:
        tried = fit_factors(rows, effects, pair, rank)
        own = held_out.y - rest - tried.mean_of(codes)
        gain = residual**2 - own**2
        if gain.mean() <= WORTH_ERRORS * gain.std() / np.sqrt(len(gain)):
            break
        chosen, residual = tried, own
    if chosen is None:
        return None
    batch = {name: torch.from_numpy(rows.astype(np.int64)) for name, rows in codes.items()}
    every = EffectVariance(effects, factors=chosen)(batch).raw.double().numpy()
    return chosen.inflated(codes, residual, every - chosen.variance_of(codes))


@dataclass(frozen=True)
class Predicted:
    """Predictions for n held-out rows.

    residual [n]: target minus mean of the calibrated distribution. total [n]: V of this distribution. By id feature,
    [n] each: codes, table rows with masked ids as unknown; ids, raw ids; history, number of training rows with the id.
    """

    residual: Floats
    total: Floats
    codes: Codes
    ids: dict[str, Array]
    history: dict[str, Any]

    def scaled_roots(self, effects: EffectVariance, name: str) -> Floats:
        """Roots [n, k]: the covariance of two rows that share an id of `name` is root_i . root_j."""
        roots: Floats = effects.roots(self.codes, name) * np.sqrt(effects.scale(self.codes, self.total))[:, None]
        return roots


@torch.no_grad()
def predicted(predict: Predict, encoding: Encoding, table: Table, masked: Sequence[str] = ()) -> Predicted:
    """Predict rows that were not used for fitting; `masked` features are treated as unknown."""
    names = encoding.schema.id_names
    encoded = encoding.encode(table, masked)
    counts = {name: np.concatenate([[0], encoding.counts[name]]) for name in names}
    known = encoding.encode(table) if masked else encoded
    history = {name: counts[name][known[name]] for name in names}
    parts: list[Floats] = []
    for start in range(0, table.rows, _PREDICT_ROWS):
        span = slice(start, start + _PREDICT_ROWS)
        found = predict({key: torch.from_numpy(values[span]) for key, values in encoded.items()})
        total = found.aleatoric() + found.epistemic()
        parts.append(np.stack([found.mean().double().numpy(), total.double().numpy()]))
    mean, total = np.concatenate(parts, 1)
    return Predicted(
        residual=table.target - mean,
        total=total,
        codes={name: encoded[name] for name in names},
        ids={name: table.columns[name] for name in names},
        history=history,
    )


def judge_pairs(effects: EffectVariance, predict: Predict, encoding: Encoding, held_out: Dataset) -> PairTest:
    """The pair test on rows that were not used for fitting."""
    table = sample(held_out, MOST_PAIR_ROWS, 0)
    figures = pair_figures(_pair_rows(effects, predicted(predict, encoding, table)))
    masked: list[PairFigure] = []
    for name in effects.names:
        rows = _pair_rows(effects, predicted(predict, encoding, table, with_below(effects, name)))
        figure = masked_figure(rows, name)
        masked += [] if figure is None else [figure]
    return PairTest(table.rows, (*figures, *masked))


def _pair_rows(effects: EffectVariance, rows: Predicted) -> PairRows:
    roots = {name: rows.scaled_roots(effects, name) for name in effects.names}
    return PairRows(rows.residual, roots, rows.ids, rows.history)


def with_below(effects: EffectVariance, name: str) -> tuple[str, ...]:
    """The feature and those nested in it: if an author is unknown, its videos are too."""
    return (name, *effects.effects.below(name))


def effect_rows(encoding: Encoding, dataset: Dataset) -> EffectRows:
    """The dataset's rows as input for the fit of effects: ids, and the bucket and z of every number."""
    ids = encoding.schema.id_names
    features = encoding.schema.features
    numbers = tuple(feature.name for feature in features if not feature.is_coded)
    categories = tuple(
        feature.name
        for feature in features
        if feature.kind == "category" and encoding.cardinality(feature.name) <= MOST_CATEGORIES
    )

    def batches() -> Iterator[tuple[Array, SideColumns, Array]]:
        for table in dataset.batches(_FIT_ROWS):
            encoded = encoding.encode(table)
            side = SideColumns(
                _stacked([encoded[name] for name in (*categories, *numbers)], table.rows),
                _stacked([encoded[z_key(name)] for name in numbers], table.rows),
            )
            yield _stacked([encoded[name] for name in ids], table.rows), side, table.target

    heights, sizes = ([encoding.cardinality(name) for name in names] for names in (ids, (*categories, *numbers)))
    return EffectRows.gather(ids, heights, sizes, len(numbers), dataset.rows, batches())


def _stacked(columns: list[Array], rows: int) -> Array:
    """The columns as a matrix [n, columns]."""
    return np.stack(columns, 1) if columns else np.zeros((rows, 0), np.float32)
