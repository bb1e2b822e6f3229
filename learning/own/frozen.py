"""The encoding of a run whose backbone is a frozen ranker: its features are computed when rows are encoded.

They are standardised by their training mean and standard deviation, because the prior of the last layer assumes
features of size 1, and limited to +-FARTHEST.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from learning.data.encoding import FARTHEST, OUT_OF_VOCABULARY, Encoding
from learning.data.table import Array, Dataset, Table, sample
from learning.own.model import RANKER_KEY, RANKER_WIDTH
from learning.own.onnx_ranker import OnnxRanker
from learning.schema import Schema

# Number of rows from which the features' mean and standard deviation are computed.
SCALED_ROWS = 50_000
# Standard deviation below which a feature counts as constant, relative to its largest value.
_CONSTANT = 1e-6


@dataclass(frozen=True)
class FrozenEncoding(Encoding):
    """centres, spreads of the ranker's features: [width] float32 each."""

    ranker: OnnxRanker = field(kw_only=True)
    feature_centres: Array = field(kw_only=True, default_factory=lambda: np.zeros(0, np.float32))
    feature_spreads: Array = field(kw_only=True, default_factory=lambda: np.ones(0, np.float32))

    @classmethod
    def fit_with(cls, ranker: OnnxRanker, train: Dataset) -> "FrozenEncoding":
        """Fit on the training part only."""
        plain = Encoding.fit(train)
        known = {item.name: getattr(plain, item.name) for item in fields(Encoding)}
        unscaled = cls(**known, ranker=ranker)
        features = unscaled.ranker_features(sample(train, SCALED_ROWS, 0))
        centres = features.mean(0, dtype=np.float64)
        spreads = features.std(0, dtype=np.float64)
        largest = np.abs(features).max(0, initial=1e-30)
        spreads = np.where(spreads > _CONSTANT * largest, spreads, 1.0)
        scale = {"feature_centres": centres.astype(np.float32), "feature_spreads": spreads.astype(np.float32)}
        return cls(**known, ranker=ranker, **scale)

    def table_sizes(self) -> dict[str, int]:
        return {**super().table_sizes(), RANKER_WIDTH: len(self.feature_centres)}

    def encode(self, table: Table, masked: Collection[str] = ()) -> dict[str, Array]:
        """The encoded columns and, under RANKER_KEY, the ranker's standardised features [n, width]."""
        encoded = self.codes(table, masked)
        features = self.ranker_features(table, masked, encoded)
        scaled = (features - self.feature_centres) / self.feature_spreads
        encoded[RANKER_KEY] = np.clip(scaled, -FARTHEST, FARTHEST).astype(np.float32)
        return encoded

    def codes(self, table: Table, masked: Collection[str] = ()) -> dict[str, Array]:
        """Everything that `encode` returns except the ranker's features."""
        return super().encode(table, masked)

    def ranker_features(
        self, table: Table, masked: Collection[str] = (), encoded: Mapping[str, Array] | None = None
    ) -> Array:
        """[n, width], as the ranker computes them."""
        encoded = self.codes(table, masked) if encoded is None else encoded
        return self.ranker(self.ranker_columns(table.columns, encoded, masked))

    def ranker_columns(
        self, columns: Mapping[str, Array], encoded: Mapping[str, Array], masked: Collection[str] = ()
    ) -> dict[str, Array]:
        """The columns as the ranker gets them: numbers within their limits, and unknown ids replaced."""
        given: dict[str, Array] = {}
        for name, values in columns.items():
            if name not in self.vocabularies:
                given[name] = np.clip(values, *self.limits(name))
            elif name in self.ranker.unknown or name in masked:
                replaced = np.asarray([self.unknown(name)])
                given[name] = np.where(encoded[name] == OUT_OF_VOCABULARY, replaced, values)
            else:
                given[name] = values
        return given

    def limits(self, name: str) -> tuple[np.float32, np.float32]:
        """Limits of a number before it enters the ranker: a float32 may be infinite, and infinity - infinity is NaN."""
        reach, largest = FARTHEST * self.spreads[name], float(np.finfo(np.float32).max)
        low, high = max(self.centres[name] - reach, -largest), min(self.centres[name] + reach, largest)
        return np.float32(low), np.float32(high)

    def unknown(self, name: str) -> int | str:
        """The replacement for an unknown id: the given one, or a value that is not in the vocabulary."""
        if name in self.ranker.unknown:
            return self.ranker.unknown[name]
        vocabulary = self.vocabularies[name]
        return "unknown id" if vocabulary.dtype.kind == "U" else int(vocabulary[-1]) + 1

    def state(self) -> dict[str, Any]:
        scale = {"feature_centres": self.feature_centres, "feature_spreads": self.feature_spreads}
        ranker = {f"ranker/{key}": value for key, value in self.ranker.state().items()}
        return {**super().state(), **scale, **ranker}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], schema: Schema) -> "FrozenEncoding":
        plain = Encoding.from_state(state, schema)
        ranker = {key.removeprefix("ranker/"): value for key, value in state.items() if key.startswith("ranker/")}
        return cls(
            **{item.name: getattr(plain, item.name) for item in fields(Encoding)},
            ranker=OnnxRanker.from_state(ranker),
            feature_centres=np.asarray(state["feature_centres"], np.float32),
            feature_spreads=np.asarray(state["feature_spreads"], np.float32),
        )
