"""The acquisition log: of the rows that were predicted, those most worth labelling (the paper's hybrid acquisition, in
service). The best rows of every minute are written as Parquet with their features and prediction. Only answers that
were sampled for the uncertainty metrics are considered.
"""

import heapq
import itertools
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Array
from serving.acquisition.files import AcquiredRow, AcquisitionFiles, FileLimits
from serving.dataplane.model_plan import plan_of
from serving.dataplane.scoring import acquisition_rule, score_rows
from serving.engines.interface import ModelVersion
from serving.telemetry.background import BackgroundWriter
from serving.telemetry.metrics import LogMetrics
from serving.telemetry.record import CallRecord

_log = logging.getLogger(__name__)

_INTERVAL_S = 60.0
# Rows of a batch considered one by one for each that can be stored: some repeat the features of one that is.
_CANDIDATES_PER_ROW = 4
# Minutes of rows that wait for a slow disk.
_WAITING = 4
_CLOSE_S = 5.0

Minute = tuple[ModelVersion, list[AcquiredRow]]


@dataclass(frozen=True)
class AcquisitionLimits:
    """`rows_per_interval` is for each model version."""

    rows_per_interval: int
    interval_s: float = _INTERVAL_S


class AcquisitionLog:
    """A sink; rows that are written and dropped are counted by `files`, and here those that it is never given."""

    needs_metadata = False

    def __init__(
        self, folder: Path, gamma: float, limits: AcquisitionLimits, files: FileLimits, metrics: LogMetrics
    ) -> None:
        self._rule = acquisition_rule(gamma)
        self._limits = limits
        self._best: dict[ModelVersion, _Best] = {}
        self._ends = time.monotonic() + limits.interval_s
        self._metrics = metrics
        self._files = AcquisitionFiles(folder, files, metrics.acquisition_rows)
        self._writer: BackgroundWriter[Minute] = BackgroundWriter(
            "acquisition log",
            self._write,
            _WAITING,
            self._files.rotate,
            metrics.write_failures.labels("acquisition").inc,
        )

    def needs_inputs(self, stored: bool, sampled: bool) -> bool:
        return sampled

    def needed_outputs(self, stored: bool, sampled: bool) -> frozenset[str]:
        return frozenset({metadata.MEAN, *self._rule.needs} if sampled else ())

    def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
        by_model: dict[ModelVersion, list[CallRecord]] = {}
        for record in records:
            if record.is_sampled and record.model and record.outputs.keys() >= set(self._rule.needs):
                by_model.setdefault(record.model, []).append(record)
        for model, answered in by_model.items():
            best = self._best.setdefault(model, _Best(self._limits.rows_per_interval))
            best.consider(answered, self._scores(model, answered), wall_offset)
        if time.monotonic() >= self._ends:
            self._hand_over()

    def close(self) -> None:
        self._hand_over()
        if self._writer.close(_CLOSE_S):
            try:
                self._files.close()
            except OSError as error:
                self._metrics.write_failures.labels("acquisition").inc()
                _log.error("cannot write the acquisition log: %s; its last rows are lost", error.strerror or error)

    def _scores(self, model: ModelVersion, records: Sequence[CallRecord]) -> Array:
        outputs = {name: np.concatenate([record.outputs[name] for record in records]) for name in self._rule.needs}
        return score_rows(self._rule, outputs, plan_of(model).knots)

    def _hand_over(self) -> None:
        self._ends = time.monotonic() + self._limits.interval_s
        for model, best in self._best.items():
            rows = best.rows()
            if rows and not self._writer.offer((model, rows)):
                self._metrics.acquisition_rows.labels("dropped").inc(len(rows))
        self._best.clear()

    def _write(self, minute: Minute) -> None:
        self._files.append(*minute)


class _Best:
    """The rows with the highest scores so far; rows with the same features are one."""

    def __init__(self, size: int) -> None:
        self._size = size
        # (score, order of arrival, features, row): the lowest score is first.
        self._heap: list[tuple[float, int, tuple[object, ...], AcquiredRow]] = []
        self._known: set[tuple[object, ...]] = set()
        self._arrival = itertools.count()

    def consider(self, records: Sequence[CallRecord], scores: Array, wall_offset: float) -> None:
        """`scores` are of all rows of the records, one below the other."""
        full = len(self._heap) == self._size
        candidates = np.flatnonzero(scores > self._heap[0][0]) if full else np.arange(len(scores))
        if len(candidates) > (most := _CANDIDATES_PER_ROW * self._size):
            candidates = candidates[np.argpartition(-scores[candidates], most)[:most]]
        candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
        ends = np.cumsum([record.rows for record in records])
        which = np.searchsorted(ends, candidates, side="right")
        starts = ends - [record.rows for record in records]
        rows = candidates - starts[which]
        for score, number, row in zip(scores[candidates].tolist(), which.tolist(), rows.tolist(), strict=True):
            if len(self._heap) == self._size and score <= self._heap[0][0]:
                return
            record = records[number]
            features = tuple(column[row] for column in record.inputs.values())
            if features in self._known:
                continue
            self._keep(score, features, AcquiredRow.of(record, row, score, record.answered + wall_offset))

    def rows(self) -> list[AcquiredRow]:
        """The best first."""
        return [row for *_, row in sorted(self._heap, key=lambda entry: (-entry[0], entry[1]))]

    def _keep(self, score: float, features: tuple[object, ...], row: AcquiredRow) -> None:
        entry = (score, next(self._arrival), features, row)
        self._known.add(features)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        else:
            self._known.discard(heapq.heapreplace(self._heap, entry)[2])
