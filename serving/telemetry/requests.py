"""Latency by stage and row counts of calls, computed in bulk from their records."""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

import numpy as np

from ghostless.contract.arrays import Array
from serving.engines.interface import ModelVersion
from serving.telemetry.metrics import RequestMetrics, labels_of
from serving.telemetry.record import CallRecord

Key = tuple[str, tuple[str, str, str]]  # method, and the labels of the model

_figures = attrgetter(
    "received",
    "times.queued",
    "times.gathered",
    "times.started",
    "times.computed",
    "answered",
    "rows",
    "times.batch_rows",
)
_COLUMNS = 8


class RequestObserver:
    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics
        self._histograms: dict[Key, _Histograms] = {}

    def observe(self, method: str, model: ModelVersion | None, calls: Sequence[CallRecord]) -> None:
        """Add calls of one method to one model version."""
        key = (method, labels_of(model))
        histograms = self._histograms.get(key)
        if histograms is None:
            histograms = self._histograms[key] = _Histograms(self._metrics, method, model)
        histograms.observe(calls)


class _Histograms:
    def __init__(self, metrics: RequestMetrics, method: str, model: ModelVersion | None) -> None:
        labels = labels_of(model)
        self._whole = metrics.request_seconds.labels(method, *labels)
        steps = (
            metrics.queue_seconds,
            metrics.batch_wait_seconds,
            metrics.compute_seconds,
            metrics.encode_seconds,
            metrics.request_rows,
            metrics.batch_rows,
        )
        # A request without a known model reaches none of these steps.
        self._steps = [step.labels(*labels) for step in steps] if model is not None else []

    def observe(self, calls: Sequence[CallRecord]) -> None:
        # Columns in the order of the steps of a call.
        flat = chain.from_iterable(map(_figures, calls))
        received, queued, gathered, started, computed, answered, rows, batch_rows = (
            np.fromiter(flat, np.float64, len(calls) * _COLUMNS).reshape(-1, _COLUMNS).T.copy()
        )
        self._whole.observe(answered - received)
        if not self._steps:
            return
        # A failed call has reached only some of the steps.
        ran, taken = computed > 0, gathered > 0
        values: tuple[Array, ...] = (
            (gathered - queued)[taken],
            (started - gathered)[ran],
            (computed - started)[ran],
            (answered - computed)[ran],
            rows[ran],
            batch_rows[ran],
        )
        for step, seen in zip(self._steps, values, strict=True):
            step.observe(np.maximum(seen, 0.0))
