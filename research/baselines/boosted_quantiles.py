"""LightGBM quantile models, the usual choice of a practitioner without a neural network.

There is one boosted model per level for the quantiles and one with squared error for the mean. An id is encoded by its
out-of-fold target mean: trees can't split a vocabulary of thousands, and an encoding that contains the row's own target
would leak it. Nothing is tuned per data set; early stopping on a part of the training rows sets the number of trees.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from learning.data.table import Array, Table
from learning.errors import DataError

Floats = NDArray[np.float64]

# 0.05, 0.10, ..., 0.95: the levels of the comparison with Ghostless.
LEVELS: Floats = np.arange(1, 20) / 20.0


@dataclass(frozen=True)
class BoostingConfig:
    """Defaults for tables of 10,000 to 1,000,000 rows. smoothing: number of rows with the overall mean that are added
    to each id. cuts: levels of the training target; for each of their quantiles c, the fraction of an id's rows with y
    <= c is encoded in addition to its mean, so that the trees see more than its centre."""

    trees: int = 300
    patience: int = 30
    learning_rate: float = 0.1
    leaves: int = 31
    leaf_rows: int = 100
    validation: float = 0.1
    folds: int = 5
    smoothing: float = 20.0
    cuts: tuple[float, ...] = (0.25, 0.5, 0.75)
    levels: tuple[float, ...] = tuple(float(level) for level in LEVELS)
    seed: int = 0


@dataclass(frozen=True)
class IdEncoding:
    """Smoothed statistics of one id feature: vocabulary [v] sorted, sums [v, c] of the statistics, counts [v]."""

    vocabulary: Array
    sums: Floats
    counts: Floats

    @classmethod
    def fit(cls, values: Array, statistics: Floats) -> "IdEncoding":
        """values [n], statistics [n, c]."""
        vocabulary, codes = np.unique(values, return_inverse=True)
        return cls(vocabulary, _sums(codes, statistics, len(vocabulary)), np.bincount(codes).astype(np.float64))

    def encode(self, values: Array, prior: Floats, smoothing: float) -> Floats:
        """values [n] -> [n, c + 1]: smoothed means and log(1 + count); an unknown id gets the prior [c] and 0."""
        place = np.minimum(np.searchsorted(self.vocabulary, values), len(self.vocabulary) - 1)
        known = self.vocabulary[place] == values
        counts = np.where(known, self.counts[place], 0.0)
        sums = np.where(known[:, None], self.sums[place], 0.0)
        return _smoothed(sums, counts, prior, smoothing)


@dataclass(frozen=True)
class TreeEncoding:
    """Turns rows into the matrix that the trees split: ids by target encoding, buckets and numbers unchanged."""

    ids: Mapping[str, IdEncoding]
    cuts: Floats
    prior: Floats
    config: BoostingConfig

    @classmethod
    def fit(cls, table: Table, config: BoostingConfig) -> tuple["TreeEncoding", Floats]:
        """The encoding for new rows, and the out-of-fold encoding [n, d] of the rows that it was fitted on."""
        cuts = np.quantile(table.target.astype(np.float64), config.cuts)
        statistics = _statistics(table.target, cuts)
        ids = {name: IdEncoding.fit(table.columns[name], statistics) for name in table.schema.id_names}
        encoding = cls(ids, cuts, statistics.mean(axis=0), config)
        return encoding, encoding._out_of_fold(table, statistics)

    def encode(self, table: Table) -> Floats:
        """[n, d] for rows that the encoding was not fitted on."""
        return self._matrix(table, lambda name, values: self._encoded(self.ids[name], values))

    def _out_of_fold(self, table: Table, statistics: Floats) -> Floats:
        fold = np.random.default_rng(self.config.seed).integers(self.config.folds, size=table.rows)

        def encoded(name: str, values: Array) -> Floats:
            columns = np.empty((len(values), statistics.shape[1] + 1))
            for number in range(self.config.folds):
                inside = fold == number
                others = IdEncoding.fit(values[~inside], statistics[~inside])
                columns[inside] = self._encoded(others, values[inside])
            return columns

        return self._matrix(table, encoded)

    def _encoded(self, encoding: IdEncoding, values: Array) -> Floats:
        return encoding.encode(values, self.prior, self.config.smoothing)

    def _matrix(self, table: Table, encode_id: Callable[[str, Array], Floats]) -> Floats:
        columns = [
            encode_id(feature.name, table.columns[feature.name])
            if feature.is_coded
            else table.columns[feature.name].astype(np.float64)[:, None]
            for feature in table.schema.features
        ]
        return np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class BoostedQuantiles:
    """Fitted models; `trees` has the number of trees of each after early stopping (the last one predicts the mean)."""

    encoding: TreeEncoding
    config: BoostingConfig
    low: float
    high: float
    boosters: tuple[lightgbm.Booster, ...] = field(repr=False)

    @classmethod
    def fit(
        cls, table: Table, config: BoostingConfig | None = None, on_model: Callable[[int, int], None] = lambda *_: None
    ) -> "BoostedQuantiles":
        """Fit to the rows of `table`, some of which are only used for early stopping; calls `on_model(done, of)` after
        each model."""
        config = config or BoostingConfig()
        if round(config.validation * table.rows) < 1:
            raise DataError(f"{table.rows} rows are too few to keep a share of {config.validation} for early stopping")
        train, validation = table.split(1.0 - config.validation, config.seed + 1)
        encoding, matrix = TreeEncoding.fit(train, config)
        # Binned once and shared by all models.
        data = lightgbm.Dataset(matrix, train.target, params={"verbose": -1}, free_raw_data=False)
        held_out = lightgbm.Dataset(encoding.encode(validation), validation.target, reference=data)
        quantiles: list[dict[str, Any]] = [{"objective": "quantile", "alpha": level} for level in config.levels]
        objectives = [*quantiles, {"objective": "l2"}]
        boosters: list[lightgbm.Booster] = []
        for objective in objectives:
            boosters.append(_boost(objective, data, held_out, config))
            on_model(len(boosters), len(objectives))
        target = table.schema.target
        return cls(encoding, config, target.low, target.high, tuple(boosters))

    @property
    def trees(self) -> tuple[int, ...]:
        return tuple(booster.best_iteration for booster in self.boosters)

    def predict(self, table: Table) -> tuple[Floats, Floats]:
        """Quantiles [n, q], non-decreasing in q, and means [n], both inside the target's range."""
        matrix = self.encoding.encode(table)
        outputs = np.stack([np.asarray(booster.predict(matrix), np.float64) for booster in self.boosters], axis=1)
        outputs = np.clip(outputs, self.low, self.high)
        # Sorting crossed quantiles never increases the pinball loss (Chernozhukov et al. 2010).
        return np.sort(outputs[:, :-1], axis=1), outputs[:, -1]


def _boost(
    objective: Mapping[str, Any], data: lightgbm.Dataset, held_out: lightgbm.Dataset, config: BoostingConfig
) -> lightgbm.Booster:
    parameters = {
        **objective,
        "learning_rate": config.learning_rate,
        "num_leaves": config.leaves,
        "min_data_in_leaf": config.leaf_rows,
        "seed": config.seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbose": -1,
    }
    stop = lightgbm.early_stopping(config.patience, verbose=False)
    return lightgbm.train(parameters, data, config.trees, valid_sets=[held_out], callbacks=[stop])


def _statistics(target: Array, cuts: Floats) -> Floats:
    """Values that are averaged per id: y, then 1[y <= cut] for each cut; [n, 1 + cuts]."""
    y = target.astype(np.float64)
    return np.concatenate([y[:, None], (y[:, None] <= cuts).astype(np.float64)], axis=1)


def _sums(codes: NDArray[np.intp], statistics: Floats, size: int) -> Floats:
    return np.stack([np.bincount(codes, column, minlength=size) for column in statistics.T], axis=1)


def _smoothed(sums: Floats, counts: Floats, prior: Floats, smoothing: float) -> Floats:
    means = (sums + smoothing * prior) / (counts[:, None] + smoothing)
    return np.concatenate([means, np.log1p(counts)[:, None]], axis=1)
