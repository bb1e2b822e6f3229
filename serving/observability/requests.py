"""How long calls took and where, and how many rows they had: from their records, many at a time."""

from collections.abc import Sequence

import numpy as np

from serving.engines.interface import ModelVersion
from serving.observability.buckets import observe_all
from serving.observability.metrics import RequestMetrics, labels_of
from serving.observability.record import CallRecord


class RequestObserver:
    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics

    def observe(self, method: str, model: ModelVersion | None, calls: Sequence[CallRecord]) -> None:
        """Calls of one method, to one model version."""
        metrics, labels = self._metrics, labels_of(model)
        # Columns, in the order of a call's life.
        received, queued, gathered, started, computed, answered, rows, batch_rows = np.array(
            [(c.received, c.queued, c.gathered, c.started, c.computed, c.answered, c.rows, c.batch_rows) for c in calls]
        ).T
        observe_all(metrics.request_seconds.labels(method, *labels), answered - received)
        # A call that failed has been through some of the steps only.
        ran = computed > 0
        taken = gathered > 0
        steps = (
            (metrics.queue_seconds, (gathered - queued)[taken]),
            (metrics.batch_wait_seconds, (started - gathered)[ran]),
            (metrics.compute_seconds, (computed - started)[ran]),
            (metrics.encode_seconds, (answered - computed)[ran]),
            (metrics.request_rows, rows[ran]),
            (metrics.batch_rows, batch_rows[ran]),
        )
        for histogram, values in steps:
            if len(values):
                observe_all(histogram.labels(*labels), np.maximum(values, 0.0))
