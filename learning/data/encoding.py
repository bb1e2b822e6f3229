"""Encodes raw feature values for the model: ids as vocabulary rows, and every number in three ways.

A number v (kinds `bucket` and `number`) is encoded by its training quantiles, in its own unit:

    bucket    int64, the number of `edges` <= v; a row of the feature's embedding table
    z         float32, SOFT_LIMIT * asinh(t / SOFT_LIMIT) of t = (v - centre) / spread clipped to +-FARTHEST: about t
              near the centre, growing with log |v| far from it
    position  float32 in [0, P], the position of v among the P + 1 `knots`: knots before it plus the share of its piece.
              The piecewise-linear encoding's ramp j is clip(position - j, 0, 1), which is
              clip((v - knots[j]) / (knots[j + 1] - knots[j]), 0, 1): P ramps, each rising from 0 to 1 over one piece

Multiplying a feature by a constant multiplies its edges, centre, spread and knots, so all three stay the same.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from learning.data.accumulate import Frequencies, UniformSample
from learning.data.table import Array, Dataset, Table
from learning.errors import CheckpointError, DataError
from learning.schema import Feature, Schema

OUT_OF_VOCABULARY = 0
# Upper limit on |t|, in spreads, which keeps s^2 finite for any float32 input.
FARTHEST = 1e4
# z is approximately linear up to this many spreads.
SOFT_LIMIT = 3.0
# Maximum number of pieces of the piecewise-linear encoding; fewer if values tie.
PIECES = 64

_FIT_BATCH_ROWS = 65_536
_TARGET_SAMPLE = 100_000
# Interquartile range / standard deviation of a normal distribution.
_NORMAL_QUARTILES = 1.349


def z_key(name: str) -> str:
    """Key of a number's z in the result of `Encoding.encode`."""
    return f"{name}/z"


def position_key(name: str) -> str:
    """Key of a number's position among its knots in the result of `Encoding.encode`."""
    return f"{name}/position"


@dataclass(frozen=True)
class Encoding:
    """The encoding of all features, fitted on the training part only.

    vocabularies: the sorted known values of each id feature, [V] int64 or str.
    counts: the number of training rows with each of them, int64 [V].
    Per number (kinds `bucket` and `number`):
    edges: inner edges of the buckets, float32, strictly increasing, at most buckets - 1.
    knots: ends of the pieces, float32, strictly increasing, at most PIECES + 1; a constant has a single knot.
    centres, spreads: median, and interquartile range divided by that of a unit normal; the standard deviation if half
    of the values tie, and 1 for a constant. target_sample: sorted float32, up to 100,000 training targets (marginal
    quantiles, bin frequencies). linear: numbers whose z is t itself, as in checkpoints of format 1.
    """

    schema: Schema
    vocabularies: Mapping[str, Array]
    counts: Mapping[str, Array]
    edges: Mapping[str, Array]
    knots: Mapping[str, Array]
    centres: Mapping[str, float]
    spreads: Mapping[str, float]
    target_sample: Array
    linear: frozenset[str] = frozenset()

    @classmethod
    def fit(cls, dataset: Dataset, max_quantile_sample: int = 250_000) -> "Encoding":
        """Fit in one pass over the data, with only the vocabularies and the samples in memory."""
        schema = dataset.schema
        frequencies = {feature.name: Frequencies() for feature in schema.features if feature.is_coded}
        samples = {
            feature.name: UniformSample(max_quantile_sample) for feature in schema.features if not feature.is_coded
        }
        targets = UniformSample(_TARGET_SAMPLE)
        seen = 0
        for batch in dataset.batches(_FIT_BATCH_ROWS):
            for gathered in (frequencies, samples):
                for name, statistic in gathered.items():
                    statistic.add(batch.columns[name])
            targets.add(batch.target)
            seen += batch.rows
        if not seen:
            raise DataError("no rows are left for training; use more data or another split")
        counted = {name: frequency.result() for name, frequency in frequencies.items()}
        values = {name: sample.sorted() for name, sample in samples.items()}
        scaled = {name: _robust_scale(of_feature) for name, of_feature in values.items()}
        return cls(
            schema=schema,
            vocabularies={name: known for name, (known, _) in counted.items()},
            counts={name: counts for name, (_, counts) in counted.items()},
            edges={
                feature.name: _quantile_edges(values[feature.name], feature.buckets)
                for feature in schema.features
                if not feature.is_coded
            },
            knots={name: _knots(of_feature) for name, of_feature in values.items()},
            centres={name: centre for name, (centre, _) in scaled.items()},
            spreads={name: spread for name, (_, spread) in scaled.items()},
            target_sample=targets.sorted(),
        )

    def cardinality(self, name: str) -> int:
        """Rows of the embedding table: V + 1 for an id (row 0 is out of vocabulary), else the number of
        buckets."""
        if name in self.vocabularies:
            return len(self.vocabularies[name]) + 1
        return len(self.edges[name]) + 1

    def table_sizes(self) -> dict[str, int]:
        """`cardinality` of every feature."""
        return {feature.name: self.cardinality(feature.name) for feature in self.schema.features}

    def pieces(self, name: str) -> int:
        """P, the number of pieces of a number's piecewise-linear encoding; 0 for a constant."""
        return len(self.knots[name]) - 1

    def encode(self, table: Table, masked: Collection[str] = ()) -> dict[str, Array]:
        """All encoded features, [n] each. By the feature's name: the int64 row of an id (0 out of vocabulary, 1..V
        known) or the int64 bucket of a number. By `z_key` and `position_key` of the name: the z and the position of a
        number (see the module). The ids of `masked` features are treated as unknown."""
        encoded: dict[str, Array] = {}
        for feature in self.schema.features:
            name, values = feature.name, table.columns[feature.name]
            if feature.is_coded:
                codes = _lookup(self.vocabularies[name], values)
                encoded[name] = np.full_like(codes, OUT_OF_VOCABULARY) if name in masked else codes
                continue
            encoded[name] = np.searchsorted(self.edges[name], values, side="right").astype(np.int64)
            encoded[z_key(name)] = self._z(name, values)
            encoded[position_key(name)] = self._position(name, values)
        return encoded

    def _z(self, name: str, values: Array) -> Array:
        distance = (values.astype(np.float64) - self.centres[name]) / self.spreads[name]
        near: Array = np.clip(distance, -FARTHEST, FARTHEST)
        bent = near if name in self.linear else SOFT_LIMIT * np.arcsinh(near / SOFT_LIMIT)
        return bent.astype(np.float32)

    def _position(self, name: str, values: Array) -> Array:
        knots = self.knots[name].astype(np.float64)
        return np.interp(values.astype(np.float64), knots, np.arange(len(knots))).astype(np.float32)

    def state(self) -> dict[str, Any]:
        """A flat dict for a checkpoint: keys such as `vocabulary/user_id`, values ndarray, list[str] or float."""
        state: dict[str, Any] = {"target_sample": self.target_sample}
        for name, vocabulary in self.vocabularies.items():
            state[f"vocabulary/{name}"] = vocabulary.tolist() if vocabulary.dtype.kind == "U" else vocabulary
            state[f"counts/{name}"] = self.counts[name]
        for name, edges in self.edges.items():
            state[f"edges/{name}"] = edges
            state[f"knots/{name}"] = self.knots[name]
            state[f"centre/{name}"] = self.centres[name]
            state[f"spread/{name}"] = self.spreads[name]
            state[f"linear/{name}"] = name in self.linear
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any], schema: Schema) -> "Encoding":
        """The inverse of `state`; arrays may also be lists or CPU tensors."""
        ids = [feature for feature in schema.features if feature.is_coded]
        numbers = [feature.name for feature in schema.features if not feature.is_coded]

        def vocabulary(feature: Feature) -> Array:
            return np.asarray(state[f"vocabulary/{feature.name}"], np.str_ if feature.type == "string" else np.int64)

        try:
            return cls(
                schema=schema,
                vocabularies={feature.name: vocabulary(feature) for feature in ids},
                counts={feature.name: np.asarray(state[f"counts/{feature.name}"], np.int64) for feature in ids},
                edges={name: np.asarray(state[f"edges/{name}"], np.float32) for name in numbers},
                knots={name: np.asarray(state[f"knots/{name}"], np.float32) for name in numbers},
                centres={name: float(state[f"centre/{name}"]) for name in numbers},
                spreads={name: float(state[f"spread/{name}"]) for name in numbers},
                target_sample=np.asarray(state["target_sample"], np.float32),
                linear=frozenset(name for name in numbers if state.get(f"linear/{name}")),
            )
        except KeyError as error:
            raise CheckpointError(f"encoding has no {error}; it belongs to another schema") from error


def _quantile_edges(values: Array, buckets: int) -> Array:
    """Inner edges at the quantiles of sorted `values`. Each edge is one of the values, and none is the smallest, so no
    bucket is empty in training; if values tie, there are fewer buckets."""
    levels = np.arange(1, buckets) / buckets
    edges = np.unique(np.quantile(values, levels, method="higher").astype(np.float32))
    inner: Array = edges[edges > values[0]]
    return inner


def _knots(values: Array) -> Array:
    """Quantiles of sorted `values`, including the ends. Each is one of the values, so that the unit does not matter."""
    levels = np.linspace(0.0, 1.0, PIECES + 1)
    knots: Array = np.unique(np.quantile(values, levels, method="higher").astype(np.float32))
    return knots


def _robust_scale(values: Array) -> tuple[float, float]:
    """Centre and spread of sorted `values`; outliers do not affect them."""
    low, centre, high = np.quantile(values.astype(np.float64), [0.25, 0.5, 0.75])
    spread = (high - low) / _NORMAL_QUARTILES or float(values.std(dtype=np.float64))
    return float(centre), float(spread) or 1.0


def _lookup(vocabulary: Array, values: Array) -> Array:
    # Cast to the vocabulary's string width first; otherwise numpy would copy and widen the whole vocabulary for every
    # batch. A longer string is truncated, but then differs from the original, so it stays unknown.
    place = np.searchsorted(vocabulary, values.astype(vocabulary.dtype, copy=False))
    place = np.minimum(place, len(vocabulary) - 1)
    return np.where(vocabulary[place] == values, place + 1, OUT_OF_VOCABULARY).astype(np.int64)
