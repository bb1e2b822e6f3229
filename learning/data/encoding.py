"""From raw feature values to what the model takes: vocabulary rows, bucket indexes, standardised numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from learning.data.accumulate import Frequencies, Moments, UniformSample
from learning.data.table import Array, Dataset, Table
from learning.errors import CheckpointError, DataError
from learning.schema import Feature, Schema

OUT_OF_VOCABULARY = 0

_FIT_BATCH_ROWS = 65_536
_TARGET_SAMPLE = 100_000


@dataclass(frozen=True)
class Encoding:
    """What training learnt of the features, fitted on the training part only.

    vocabularies: per id feature its known values, sorted, [V] int64 or str.
    counts: per id feature how often training saw each of them, int64 [V].
    edges: per bucket feature its inner edges, float32, strictly increasing, at most buckets - 1.
    means, deviations: per number feature.
    target_sample: sorted float32, up to 100,000 training targets (marginal quantiles, bin frequencies).
    """

    schema: Schema
    vocabularies: Mapping[str, Array]
    counts: Mapping[str, Array]
    edges: Mapping[str, Array]
    means: Mapping[str, float]
    deviations: Mapping[str, float]
    target_sample: Array

    @classmethod
    def fit(cls, dataset: Dataset, max_quantile_sample: int = 1_000_000) -> "Encoding":
        """In one pass over the data, holding no more than the vocabularies and the samples."""
        schema = dataset.schema
        frequencies = {feature.name: Frequencies() for feature in schema.features if feature.kind == "id"}
        samples = {
            feature.name: UniformSample(max_quantile_sample) for feature in schema.features if feature.kind == "bucket"
        }
        moments = {feature.name: Moments() for feature in schema.features if feature.kind == "number"}
        targets = UniformSample(_TARGET_SAMPLE)
        seen = 0
        for batch in dataset.batches(_FIT_BATCH_ROWS):
            for gathered in (frequencies, samples, moments):
                for name, statistic in gathered.items():
                    statistic.add(batch.columns[name])
            targets.add(batch.target)
            seen += batch.rows
        if not seen:
            raise DataError("the training part has no rows; give more data or another split")
        counted = {name: frequency.result() for name, frequency in frequencies.items()}
        scaled = {name: moment.result() for name, moment in moments.items()}
        return cls(
            schema=schema,
            vocabularies={name: values for name, (values, _) in counted.items()},
            counts={name: counts for name, (_, counts) in counted.items()},
            edges={
                feature.name: _quantile_edges(samples[feature.name].sorted(), feature.buckets)
                for feature in schema.features
                if feature.kind == "bucket"
            },
            means={name: mean for name, (mean, _) in scaled.items()},
            deviations={name: deviation for name, (_, deviation) in scaled.items()},
            target_sample=targets.sorted(),
        )

    def cardinality(self, name: str) -> int:
        """Rows of the embedding table: V + 1 for an id (row 0 is out of vocabulary), else the number of
        buckets."""
        if name in self.vocabularies:
            return len(self.vocabularies[name]) + 1
        return len(self.edges[name]) + 1

    def encode(self, table: Table) -> dict[str, Array]:
        """All features [n]: id -> int64 row, 0 out of vocabulary and 1..V known; bucket -> int64 index, the
        number of edges <= x; number -> float32 (x - mean) / deviation."""
        return {feature.name: self._encode(feature, table.columns[feature.name]) for feature in self.schema.features}

    def _encode(self, feature: Feature, values: Array) -> Array:
        name = feature.name
        if feature.kind == "id":
            return _lookup(self.vocabularies[name], values)
        if feature.kind == "bucket":
            return np.searchsorted(self.edges[name], values, side="right").astype(np.int64)
        scaled = (values.astype(np.float64) - self.means[name]) / self.deviations[name]
        return scaled.astype(np.float32)

    def state(self) -> dict[str, Any]:
        """Flat and plain, for a checkpoint: `vocabulary/user_id` and so on to ndarray, list[str] or float."""
        state: dict[str, Any] = {"target_sample": self.target_sample}
        for name, vocabulary in self.vocabularies.items():
            state[f"vocabulary/{name}"] = vocabulary.tolist() if vocabulary.dtype.kind == "U" else vocabulary
            state[f"counts/{name}"] = self.counts[name]
        for name, edges in self.edges.items():
            state[f"edges/{name}"] = edges
        for name, mean in self.means.items():
            state[f"mean/{name}"] = mean
            state[f"deviation/{name}"] = self.deviations[name]
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any], schema: Schema) -> "Encoding":
        """The inverse of `state`; arrays may also come as lists or CPU tensors."""
        of_kind = {
            kind: [feature for feature in schema.features if feature.kind == kind]
            for kind in ("id", "bucket", "number")
        }
        try:
            return cls(
                schema=schema,
                vocabularies={
                    feature.name: np.asarray(
                        state[f"vocabulary/{feature.name}"],
                        np.str_ if feature.type == "string" else np.int64,
                    )
                    for feature in of_kind["id"]
                },
                counts={
                    feature.name: np.asarray(state[f"counts/{feature.name}"], np.int64) for feature in of_kind["id"]
                },
                edges={
                    feature.name: np.asarray(state[f"edges/{feature.name}"], np.float32)
                    for feature in of_kind["bucket"]
                },
                means={feature.name: float(state[f"mean/{feature.name}"]) for feature in of_kind["number"]},
                deviations={feature.name: float(state[f"deviation/{feature.name}"]) for feature in of_kind["number"]},
                target_sample=np.asarray(state["target_sample"], np.float32),
            )
        except KeyError as missing:
            raise CheckpointError(f"encoding has no {missing}; it belongs to another schema") from missing


def _quantile_edges(values: Array, buckets: int) -> Array:
    """Inner edges at the quantiles of sorted `values`. Each edge is itself a value, and none is the smallest,
    so no bucket is empty in training; where values tie there are fewer buckets."""
    levels = np.arange(1, buckets) / buckets
    edges = np.unique(np.quantile(values, levels, method="higher").astype(np.float32))
    inner: Array = edges[edges > values[0]]
    return inner


def _lookup(vocabulary: Array, values: Array) -> Array:
    # Cast to the vocabulary's width first, or numpy would widen a copy of the whole vocabulary for every
    # batch. A longer string is cut by that, but then differs from what it was cut to, so it stays unknown.
    place = np.searchsorted(vocabulary, values.astype(vocabulary.dtype, copy=False))
    place = np.minimum(place, len(vocabulary) - 1)
    return np.where(vocabulary[place] == values, place + 1, OUT_OF_VOCABULARY).astype(np.int64)
