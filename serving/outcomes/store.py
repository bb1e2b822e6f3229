"""Stores predictions until their outcomes are reported: limited in bytes and in age, found by request_id.

Rows are stored consecutively in a few large segments, so that thousands of outcomes are looked up with one gather per
segment, and the oldest predictions are dropped one segment at a time.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from ghostless.contract.arrays import Tensors
from ghostless.v1 import prediction_pb2 as pb
from serving.outcomes.stored_distribution import KEYS, StoredDistribution

OutcomeResult = pb.RecordOutcomesResponse
ModelLabels = tuple[str, str, str]
Places = npt.NDArray[np.int64]

MAX_ID_LENGTH = 256
# A sixteenth of the store is dropped at a time.
_SEGMENTS = 16
# Memory of one request in addition to its rows: index entry, string and list slot.
_REQUEST_BYTES = 400
# Number of ids of dropped predictions that are kept, to distinguish late outcomes from unknown ones.
_FORGOTTEN_IDS = 65_536


def storage_sampler(rate: float) -> Callable[[str], bool]:
    """A function that tells whether the prediction of a request is stored; the same in every process."""
    below = rate * 2**32

    def is_stored(request_id: str) -> bool:
        return 0 < len(request_id) <= MAX_ID_LENGTH and crc32(request_id.encode()) < below

    return is_stored


@dataclass(frozen=True)
class StoredPrediction:
    """One answered request; `outputs` are those that its model's StoredDistribution stores."""

    request_id: str
    rows: int
    time: float
    outputs: Tensors


@dataclass(frozen=True, eq=False)
class Matched:
    """Matched outcomes of one model version: their positions in the call [m], the stored outputs of their rows [m,
    ...], and the seconds since the prediction [m]."""

    stored: StoredDistribution
    places: Places
    outputs: Tensors
    lags: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lookup:
    """`results` [n] are values of RecordOutcomesResponse.Result; `counts` only includes predictions that are or were
    stored."""

    results: npt.NDArray[np.uint8]
    counts: Counter[tuple[int, ModelLabels]]
    matched: list[Matched]


class _Segment:
    __slots__ = ("bytes", "ids", "newest", "outputs", "rows", "seen", "stored", "used")

    def __init__(self, stored: StoredDistribution, rows: int) -> None:
        self.stored = stored
        self.rows = rows
        self.outputs = {
            name: np.empty((rows, width), np.uint32 if name in KEYS else np.float32)
            for name, width in stored.outputs.items()
        }
        self.clear()

    def clear(self) -> None:
        # Rows whose outcome has been reported.
        self.seen = np.zeros(self.rows, np.bool_)
        self.ids: list[str] = []
        self.used = 0
        self.bytes = 0
        self.newest = 0.0


class _Entry(NamedTuple):
    segment: _Segment
    start: int
    rows: int
    time: float


class OutcomeStore:
    """The store. Safe to use from several threads."""

    def __init__(self, max_bytes: int, max_age_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._index: dict[str, _Entry] = {}
        self._forgotten: dict[str, ModelLabels] = {}
        self._segments: list[_Segment] = []
        self._open: dict[ModelLabels, _Segment] = {}
        # The segment that was dropped last, for reuse: new memory from the system costs more than filling it.
        self._spare: _Segment | None = None
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def rows(self) -> int:
        with self._lock:
            return sum(segment.used for segment in self._segments)

    def add(self, stored: StoredDistribution, predictions: Sequence[StoredPrediction], now: float) -> None:
        """Add predictions of one model version. If a request_id occurs again, the latest prediction counts."""
        with self._lock:
            start = 0
            while start < len(predictions):
                start += self._fill(stored, predictions[start:])
            self._forget(now)

    def look_up(self, ids: Sequence[str], rows: Places, now: float) -> Lookup:
        """Find the prediction of each outcome [n]; each row can be found only once."""
        results = np.full(len(ids), OutcomeResult.UNKNOWN, np.uint8)
        counts: Counter[tuple[int, ModelLabels]] = Counter()
        by_segment: dict[_Segment, list[tuple[int, _Entry]]] = {}
        with self._lock:
            self._forget(now)
            for place, entry in enumerate(map(self._index.get, ids)):
                if entry is not None and now - entry.time <= self._max_age_s:
                    by_segment.setdefault(entry.segment, []).append((place, entry))
                    continue
                labels = entry.segment.stored.labels if entry is not None else self._forgotten.get(ids[place])
                if labels is not None:
                    results[place] = OutcomeResult.LATE
                    counts[OutcomeResult.LATE, labels] += 1
            matched = [self._match(segment, found, rows, now, results) for segment, found in by_segment.items()]
        for segment, found in by_segment.items():
            values, times = np.unique(results[[place for place, _ in found]], return_counts=True)
            for result, count in zip(values.tolist(), times.tolist(), strict=True):
                counts[result, segment.stored.labels] += count
        return Lookup(results, counts, [group for group in matched if len(group.places)])

    def _match(
        self,
        segment: _Segment,
        found: list[tuple[int, _Entry]],
        rows: Places,
        now: float,
        results: npt.NDArray[np.uint8],
    ) -> Matched:
        places = np.array([place for place, _ in found], np.int64)
        starts, lengths, times = np.array([entry[1:] for _, entry in found], np.float64).T
        inside = rows[places] < lengths
        results[places[~inside]] = OutcomeResult.INVALID
        places, times = places[inside], times[inside]
        flat = starts[inside].astype(np.int64) + rows[places]
        first = np.zeros(len(flat), np.bool_)
        first[np.unique(flat, return_index=True)[1]] = True
        fresh = first & ~segment.seen[flat]
        results[places] = np.where(fresh, OutcomeResult.JOINED, OutcomeResult.DUPLICATE)
        segment.seen[flat] = True
        outputs = {name: values[flat[fresh]] for name, values in segment.outputs.items()}
        return Matched(segment.stored, places[fresh], outputs, now - times[fresh])

    def _fill(self, stored: StoredDistribution, predictions: Sequence[StoredPrediction]) -> int:
        """Append as many predictions as fit into the open segment, at least one; returns their number."""
        segment = self._open.get(stored.labels)
        # A version that was reloaded may have a different shape.
        if segment is None or segment.stored is not stored or segment.used + predictions[0].rows > segment.rows:
            segment = self._new_segment(stored, predictions[0].rows)
        start, count = segment.used, 0
        for prediction in predictions:
            if segment.used + prediction.rows > segment.rows:
                break
            self._enter(segment, prediction)
            count += 1
        for name, values in segment.outputs.items():
            parts = [prediction.outputs[name].reshape(prediction.rows, -1) for prediction in predictions[:count]]
            np.concatenate(parts, out=values[start : segment.used])
        return count

    def _new_segment(self, stored: StoredDistribution, rows: int) -> _Segment:
        segment, self._spare = self._spare, None
        if segment is None or segment.stored is not stored or segment.rows < rows:
            segment = _Segment(stored, max(self._max_bytes // _SEGMENTS // stored.row_bytes, rows, 1))
        self._open[stored.labels] = segment
        self._segments.append(segment)
        return segment

    def _enter(self, segment: _Segment, prediction: StoredPrediction) -> None:
        request_id, rows = prediction.request_id, prediction.rows
        earlier = self._index.get(request_id)
        entry = self._index[request_id] = _Entry(segment, segment.used, rows, prediction.time)
        if earlier is not None and earlier.rows == rows:
            # The request was sent twice: an outcome that has been reported counts for both.
            seen = earlier.segment.seen[earlier.start : earlier.start + rows]
            segment.seen[entry.start : entry.start + rows] = seen
        self._forgotten.pop(request_id, None)
        segment.ids.append(request_id)
        segment.used += rows
        segment.newest = max(segment.newest, prediction.time)
        size = rows * (segment.stored.row_bytes + 1) + _REQUEST_BYTES + len(request_id)
        segment.bytes += size
        self._bytes += size

    def _forget(self, now: float) -> None:
        """Drop the oldest segments until the store is within its limits of size and age."""
        while self._segments:
            oldest = min(self._segments, key=lambda segment: segment.newest)
            if self._bytes <= self._max_bytes and now - oldest.newest <= self._max_age_s:
                return
            self._segments.remove(oldest)
            if self._open.get(oldest.stored.labels) is oldest:
                del self._open[oldest.stored.labels]
            self._bytes -= oldest.bytes
            for request_id in oldest.ids:
                if (entry := self._index.get(request_id)) is not None and entry.segment is oldest:
                    del self._index[request_id]
                    self._forgotten[request_id] = oldest.stored.labels
            excess = len(self._forgotten) - _FORGOTTEN_IDS
            for request_id in list(self._forgotten)[: max(0, excess)]:
                del self._forgotten[request_id]
            oldest.clear()
            self._spare = oldest
