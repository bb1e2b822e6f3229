"""Joins outcomes with the predictions of this process, and scores them.

The sink stores the distributions of requests that have a request_id; `join` scores the outcomes whose predictions are
stored here and reports which are not.
"""

import time
from collections import Counter
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ghostless.contract import metadata
from ghostless.v1 import prediction_pb2 as pb
from serving.engines.interface import ModelVersion
from serving.outcomes.calibration import Scored, observe, score
from serving.outcomes.pairs import JoinedRows, PairTest, row_keys
from serving.outcomes.store import Matched, ModelLabels, OutcomeStore, Places, StoredPrediction, storage_sampler
from serving.outcomes.stored_distribution import NEEDED, StoredDistribution, distribution_to_store
from serving.telemetry.metrics import OutcomeMetrics
from serving.telemetry.record import CallRecord

Actuals = npt.NDArray[np.float32]
Results = npt.NDArray[np.uint8]

# Outcomes that are scored before other threads can run; they take less than a millisecond.
_CHUNK = 256


class OutcomeJoiner:
    """The sink that stores predictions, and the join with their outcomes."""

    needs_metadata = False

    def __init__(self, store: OutcomeStore, metrics: OutcomeMetrics, rate: float = 1.0) -> None:
        """`rate` is the share of requests whose predictions are stored."""
        self._store = store
        self.is_stored = storage_sampler(rate)
        self._metrics = metrics
        self._pairs: WeakKeyDictionary[StoredDistribution, PairTest] = WeakKeyDictionary()
        self._stored: WeakKeyDictionary[ModelVersion, StoredDistribution | None] = WeakKeyDictionary()

    def needs_inputs(self, stored: bool, sampled: bool) -> bool:
        return stored

    def needed_outputs(self, stored: bool, sampled: bool) -> frozenset[str]:
        return NEEDED if stored else frozenset()

    def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
        by_model: dict[StoredDistribution, list[CallRecord]] = {}
        for record in records:
            if record.code != "OK" or not record.is_stored or record.model is None:
                continue
            stored = self._distribution(record.model)
            if stored is not None and stored.is_in(record.outputs):
                by_model.setdefault(stored, []).append(record)
        for stored, calls in by_model.items():
            self._store.add(stored, _predictions(stored, calls, wall_offset), time.time())
        self._metrics.predictions_stored.set(self._store.rows)

    def close(self) -> None:
        """Nothing to do: stored predictions are lost when the process ends."""

    def join(self, ids: Sequence[str], rows: Places, actuals: Actuals) -> Results:
        """Score the outcomes [n] whose predictions are stored here; UNKNOWN for the others. `actuals` are finite."""
        results = np.empty(len(ids), np.uint8)
        counts: Counter[tuple[int, ModelLabels]] = Counter()
        scored: dict[StoredDistribution, list[Scored]] = {}
        hashes = np.fromiter(map(hash, ids), np.int64, len(ids))
        for start in range(0, len(ids), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            found = self._store.look_up(ids[chunk], rows[chunk], time.time())
            results[chunk] = found.results
            counts.update(found.counts)
            for matched in found.matched:
                part = score(matched, actuals[chunk][matched.places])
                scored.setdefault(matched.stored, []).append(part)
                self._add_pairs(matched, hashes[chunk][matched.places], part)
            # Let other threads run, so that a large call does not delay requests.
            time.sleep(0)
        for (result, labels), count in counts.items():
            self._metrics.outcomes.labels(result_name(result), *labels).inc(count)
        for stored, parts in scored.items():
            observe(self._metrics, stored, parts)
        return results

    def _add_pairs(self, matched: Matched, requests: npt.NDArray[np.int64], scored: Scored) -> None:
        stored = matched.stored
        if stored.candidate_variance:
            residuals = scored.clipped - matched.outputs[metadata.MEAN][:, 0]
            self._pair_test(stored).add(JoinedRows(requests, matched.outputs, residuals))

    def _pair_test(self, stored: StoredDistribution) -> PairTest:
        test = self._pairs.get(stored)
        if test is None:
            # Another thread may have created it meanwhile.
            test = self._pairs.setdefault(stored, PairTest(stored, self._metrics.pairs))
        return test

    def _distribution(self, model: ModelVersion) -> StoredDistribution | None:
        if model not in self._stored:
            self._stored[model] = distribution_to_store(model)
        return self._stored[model]


def _predictions(stored: StoredDistribution, calls: Sequence[CallRecord], wall_offset: float) -> list[StoredPrediction]:
    """Predictions of answered calls to one model version, with the keys of their rows if the pair test needs them."""
    keys = row_keys(stored, [call.inputs for call in calls]) if stored.candidate_variance else {}
    predictions, start = [], 0
    for call in calls:
        own = {name: values[start : start + call.rows] for name, values in keys.items()}
        start += call.rows
        predictions.append(
            StoredPrediction(call.request_id, call.rows, call.answered + wall_offset, {**call.outputs, **own})
        )
    return predictions


def result_name(result: int) -> str:
    """The value of the metric's label."""
    return pb.RecordOutcomesResponse.Result.Name(result).lower()
