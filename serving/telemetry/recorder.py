"""Collects the records of calls and processes them later, many at once, on a background thread.

A request pays for one counter and one append. Metrics per request and per row are computed in numpy a few times a
second, and then the sinks get the same records. Only `requests_total` and the counters of failures are always exact,
even if the process is killed; the rest may be one interval late.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from random import random

from ghostless.contract.arrays import Tensors
from ghostless.contract.errors import RequestError
from serving.engines.interface import ModelVersion
from serving.errors import ExpiredError, NonFiniteError, OverloadedError
from serving.telemetry.instruments import Counter
from serving.telemetry.metrics import NO_MODEL, ServerMetrics, labels_of
from serving.telemetry.record import NO_TENSORS, CallRecord
from serving.telemetry.requests import RequestObserver
from serving.telemetry.sinks import Sink
from serving.telemetry.uncertainty import NEEDED, STRIDE, WIDE_OUTPUTS, UncertaintyObserver

_log = logging.getLogger(__name__)

INTERVAL_S = 0.5
# Rows at which the backlog is processed before the interval ends. Each time costs a millisecond in addition to the
# rows, so a larger backlog is cheaper: 23 us per request of 256 rows at 16,384 rows, 9 us at 65,536.
BACKLOG_ROWS = 131_072
# Maximum backlog; about 100 MB of outputs. A call counts as a few rows in addition to its own.
MAX_BACKLOG_ROWS = 400_000
_CALL_ROWS = 16
# A row of a stored prediction has its whole CDF until it is processed, so it counts as this many rows.
_STORED_ROW_COST = 4


class Recorder:
    def __init__(
        self,
        metrics: ServerMetrics,
        sinks: Sequence[Sink] = (),
        *,
        uncertainty_rate: float = 1.0,
        uncertainty_rows_per_s: float = math.inf,
        uncertainty_metrics: bool = True,
        is_stored: Callable[[str], bool] = bool,
        on_interval: Callable[[], None] = lambda: None,
        interval_s: float = INTERVAL_S,
        max_backlog_rows: int = MAX_BACKLOG_ROWS,
    ) -> None:
        """`uncertainty_rate`: share of responses sampled for the uncertainty metrics and the acquisition log; it is
        reduced to keep within `uncertainty_rows_per_s`. Without `uncertainty_metrics`, only the sinks get them.

        `is_stored` tells for a request_id whether its prediction is stored for outcomes. `on_interval` is called once
        per interval, for gauges, which are read rather than counted.
        """
        self.needs_metadata = any(sink.needs_metadata for sink in sinks)
        # Keys: whether the prediction is stored, and whether the response is sampled.
        self._needs_inputs = {
            (stored, sampled): any(sink.needs_inputs(stored, sampled) for sink in sinks)
            for stored in (False, True)
            for sampled in (False, True)
        }
        self._metrics = metrics
        self._sinks = tuple(sinks)
        self._requests = RequestObserver(metrics.requests)
        self._uncertainty = UncertaintyObserver(metrics.uncertainty) if uncertainty_metrics else None
        self._uncertainty_rate = self._drawn_share = uncertainty_rate
        self._uncertainty_rows_per_s = uncertainty_rows_per_s
        # Rows in responses since the share was last set.
        self._answered_rows = 0
        self._share_set = time.monotonic()
        self._is_stored = is_stored
        self._needed = {
            (stored, sampled): frozenset[str](NEEDED if sampled and uncertainty_metrics else ()).union(
                *(sink.needed_outputs(stored, sampled) for sink in sinks)
            )
            for stored in (False, True)
            for sampled in (False, True)
        }
        # A record that is neither stored nor sampled needs no arrays.
        self._needs_nothing = not self._needed[False, False] and not self._needs_inputs[False, False]
        self._on_interval = on_interval
        self._interval_s = interval_s
        self._max_backlog_rows = max_backlog_rows
        self._refused = metrics.requests.rejected.labels("queue")
        self._records: list[CallRecord] = []
        # Rows not yet processed. Threads may miscount it by a call; processing the backlog resets it.
        self._backlog = 0
        self._due = threading.Event()
        self._processing = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._outputs_for = lru_cache(maxsize=1024)(self._all_outputs)

    def start(self) -> None:
        _guarded(self._on_interval, "reading the gauges")
        self._thread.start()

    def stop(self) -> None:
        """Call this after the last call has ended: processes everything recorded and closes the sinks."""
        self._stopped = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()
        for sink in self._sinks:
            _guarded(sink.close, f"closing {_name(sink)}")

    def begin(self, record: CallRecord, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Decide whether the call is stored and sampled; returns the graph outputs that are needed."""
        record.is_stored = stored = record.request_id != "" and self._is_stored(record.request_id)
        record.is_sampled = sampled = random() < self._drawn_share
        if not stored and not sampled and self._needs_nothing:
            return asked
        assert record.model is not None
        return self._outputs_for(record.model.outputs, asked, stored, sampled)

    def _all_outputs(
        self, offered: tuple[str, ...], asked: tuple[str, ...], stored: bool, sampled: bool
    ) -> tuple[str, ...]:
        wanted = self._needed[stored, sampled].union(asked)
        return tuple(name for name in offered if name in wanted)

    def answered(self, record: CallRecord) -> None:
        """Count the call immediately, and queue its record for processing.

        Every request passes through here while the processor's caches are full of the graph's data. Each function call
        then costs several times as much as in a loop, so there are few of them.
        """
        record.code = "OK"
        record.answered = time.monotonic()
        model = record.model
        labels = model.labels if model is not None else NO_MODEL
        self._metrics.requests.requests.labels(record.method, "OK", *labels).inc()
        backlog = self._backlog
        if backlog > self._max_backlog_rows:
            self._metrics.requests.observations_dropped.inc()
            return
        if not record.is_stored and not record.is_sampled and self._needs_nothing:
            record.inputs = record.outputs = NO_TENSORS
            self._backlog = backlog = backlog + _CALL_ROWS
        else:
            self._drop_unneeded(record)
            self._backlog = backlog = backlog + (_STORED_ROW_COST if record.is_stored else 1) * record.rows + _CALL_ROWS
        self._records.append(record)
        if backlog >= BACKLOG_ROWS and not self._due.is_set():
            self._due.set()

    def end(self, record: CallRecord, code: str, error: RequestError | None = None) -> None:
        """Like `answered`, for a call that failed."""
        record.code = code
        record.answered = time.monotonic()
        self._counter(record.method, code, record.model).inc()
        if error is not None:
            self._count_error(record, error)
        if self._backlog > self._max_backlog_rows:
            self._metrics.requests.observations_dropped.inc()
            return
        self._records.append(record)
        self._backlog += record.rows + _CALL_ROWS
        if self._backlog >= BACKLOG_ROWS:
            self._due.set()

    def rejected_unparsed(self, method: str) -> None:
        """Count a call that was rejected because the queue is full; it is neither timed nor passed to the sinks."""
        self._counter(method, "RESOURCE_EXHAUSTED", None).inc()
        self._refused.inc()

    def unknown_method(self) -> None:
        self._metrics.requests.unknown_methods.inc()

    def _counter(self, method: str, code: str, model: ModelVersion | None) -> Counter:
        return self._metrics.requests.requests.labels(method, code, *labels_of(model))

    def _drop_unneeded(self, record: CallRecord) -> None:
        """Drop arrays that are not needed: the sooner their memory is reused, the more of it is still in the caches."""
        if not self._needs_inputs[record.is_stored, record.is_sampled]:
            record.inputs = NO_TENSORS
        outputs = record.outputs
        if record.is_sampled and self._uncertainty is not None:
            record.wide_rows = sample_wide_outputs(outputs)
        needed = self._needed[record.is_stored, record.is_sampled]
        record.outputs = {name: outputs[name] for name in needed if name in outputs} if needed else NO_TENSORS

    def refused(self, record: CallRecord) -> None:
        """The message is too large."""
        self._metrics.requests.rejected.labels("message").inc()
        self.end(record, "RESOURCE_EXHAUSTED")

    def client_left(self, record: CallRecord, expired: bool) -> None:
        """The client disconnected or cancelled, or its deadline passed."""
        if expired:
            self.end(record, "DEADLINE_EXCEEDED", ExpiredError("the deadline passed before the response was ready"))
        else:
            self._metrics.requests.cancelled.inc()
            self.end(record, "CANCELLED")

    def _count_error(self, record: CallRecord, error: RequestError) -> None:
        """Count what the status code alone does not show."""
        requests = self._metrics.requests
        record.details = str(error)
        if isinstance(error, OverloadedError):
            self._refused.inc()
        elif isinstance(error, ExpiredError):
            stage = "engine" if record.times.started else "queue" if record.times.queued else "arrival"
            requests.expired.labels(stage).inc()
        elif isinstance(error, NonFiniteError):
            self._metrics.uncertainty.non_finite_outputs.labels(*labels_of(record.model)).inc()

    def flush(self) -> None:
        """Process everything recorded so far."""
        with self._processing:
            self._process_backlog()
            self._set_drawn_share()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopped:
            self._due.wait(self._interval_s)
            self._due.clear()
            with self._processing:
                self._process_backlog()
                if time.monotonic() - began < self._interval_s:
                    continue
                self._set_drawn_share()
            began = time.monotonic()
            _guarded(self._on_interval, "reading the gauges")

    def _process_backlog(self) -> None:
        # Other threads may append meanwhile, but only after these.
        records = self._records[:]
        del self._records[: len(records)]
        self._backlog = 0
        self._process(records)

    def _set_drawn_share(self) -> None:
        """So that about `uncertainty_rows_per_s` are sampled, if the next interval is like the last."""
        now = time.monotonic()
        rows_per_s = self._answered_rows / max(now - self._share_set, 1e-3)
        self._answered_rows, self._share_set = 0, now
        self._drawn_share = min(self._uncertainty_rate, self._uncertainty_rows_per_s / max(rows_per_s, 1.0))

    def _process(self, records: Sequence[CallRecord]) -> None:
        _guarded(lambda: self._observe(records), f"counting {len(records)} calls")
        wall_offset = time.time() - time.monotonic()
        for sink in self._sinks:
            _guarded(partial(sink.take, records, wall_offset), f"passing {len(records)} calls to {_name(sink)}")

    def _observe(self, records: Sequence[CallRecord]) -> None:
        for (method, model), calls in _by_model(records).items():
            self._requests.observe(method, model, calls)
            if model is None:
                continue
            unknown = self._metrics.requests.unknown_features.labels(*labels_of(model))
            unknown.inc(sum([call.unknown_features for call in calls]))
            answered = [call for call in calls if call.code == "OK"]
            if not answered:
                continue
            rows = sum([call.rows for call in answered])
            self._answered_rows += rows
            self._metrics.uncertainty.rows.labels(*labels_of(model)).inc(rows)
            sampled = [call for call in answered if call.is_sampled]
            if self._uncertainty is not None and sampled:
                self._metrics.uncertainty.uncertainty_rows.labels(*labels_of(model)).inc(
                    sum(call.rows for call in sampled)
                )
                self._uncertainty.observe(
                    model, [call.outputs for call in sampled], [call.wide_rows for call in sampled]
                )


def _by_model(records: Sequence[CallRecord]) -> dict[tuple[str, ModelVersion | None], Sequence[CallRecord]]:
    """Records by method and model; usually they are all the same."""
    keys = [(record.method, record.model) for record in records]
    different = set(keys)
    if len(different) == 1:
        return {keys[0]: records}
    return {key: [record for record, own in zip(records, keys, strict=True) if own == key] for key in different}


def _guarded(action: Callable[[], None], what: str) -> None:
    """Log an exception instead of raising it, so that it affects neither the other actions nor the thread."""
    try:
        action()
    except Exception:
        _log.exception("%s failed", what)


def _name(sink: Sink) -> str:
    return type(sink).__name__


def sample_wide_outputs(outputs: Tensors) -> Tensors:
    """Copies of every 16th row of the wide outputs."""
    return {name: outputs[name][::STRIDE].copy() for name in WIDE_OUTPUTS if name in outputs}
