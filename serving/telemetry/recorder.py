"""Takes the records of calls, and processes them later, many at once, on a thread of its own.

A request pays for one counter and one append. What is counted per request or per row is worked out in numpy a few times
a second, and sinks get the same records after that. Only `requests_total` and the counters of what
failed are exact at every moment, also if the process is killed; the rest may be an interval behind.
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
# Rows at which the backlog is processed before the interval ends. That costs a millisecond besides its rows, so fewer,
# larger runs are cheaper: 23 us a request of 256 rows at 16,384 rows, 9 us at 65,536.
BACKLOG_ROWS = 131_072
# What may wait to be processed; about 100 MB of outputs. A call counts as a few rows besides its own.
MAX_BACKLOG_ROWS = 400_000
_CALL_ROWS = 16
# A row of a prediction that is stored holds its whole CDF until it is processed, so it counts as so many.
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
        """`uncertainty_rate` is the share of answers, drawn at random, that the uncertainty metrics and the acquisition
        log sample; it is less where that would be more than `uncertainty_rows_per_s`. Without `uncertainty_metrics`
        only sinks get them.

        `is_stored` says of a request_id whether its prediction waits for outcomes. `on_interval` is called
        once per interval: for gauges, which are read rather than counted.
        """
        self.needs_metadata = any(sink.needs_metadata for sink in sinks)
        # By whether the prediction is stored, and whether the uncertainty metrics sample the answer.
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
        # Of answers, since the share was last set.
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
        # An answer that is neither stored nor sampled leaves no arrays behind.
        self._needs_nothing = not self._needed[False, False] and not self._needs_inputs[False, False]
        self._on_interval = on_interval
        self._interval_s = interval_s
        self._max_backlog_rows = max_backlog_rows
        self._refused = metrics.requests.rejected.labels("queue")
        self._records: list[CallRecord] = []
        # Rows not yet processed. Threads may miscount it by a call; processing the backlog sets it right.
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
        """After the last call ended: everything recorded is counted, and the sinks are closed."""
        self._stopped = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()
        for sink in self._sinks:
            _guarded(sink.close, f"closing {_name(sink)}")

    def begin(self, record: CallRecord, asked: tuple[str, ...]) -> tuple[str, ...]:
        """What to ask the record's model for, so that the answer can be made and observed as is drawn here."""
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
        """Count the call at once, and queue its record to be processed soon.

        Every request comes through here with the processor's caches full of the graph's run, where each function that
        is called costs a multiple of what it does in a loop: hence few of them.
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
        """As `answered`, of a call that failed."""
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
        """A call that found the queue full: counted, but neither timed nor given to sinks."""
        self._counter(method, "RESOURCE_EXHAUSTED", None).inc()
        self._refused.inc()

    def unknown_method(self) -> None:
        self._metrics.requests.unknown_methods.inc()

    def _counter(self, method: str, code: str, model: ModelVersion | None) -> Counter:
        return self._metrics.requests.requests.labels(method, code, *labels_of(model))

    def _drop_unneeded(self, record: CallRecord) -> None:
        """Drop the arrays that nobody needs: the sooner their memory is used again, the more of it is in the caches."""
        if not self._needs_inputs[record.is_stored, record.is_sampled]:
            record.inputs = NO_TENSORS
        outputs = record.outputs
        if record.is_sampled and self._uncertainty is not None:
            record.wide_rows = sample_wide_outputs(outputs)
        needed = self._needed[record.is_stored, record.is_sampled]
        record.outputs = {name: outputs[name] for name in needed if name in outputs} if needed else NO_TENSORS

    def refused(self, record: CallRecord) -> None:
        """The message is too large to be taken."""
        self._metrics.requests.rejected.labels("message").inc()
        self.end(record, "RESOURCE_EXHAUSTED")

    def client_left(self, record: CallRecord, expired: bool) -> None:
        """Nobody waits for the answer any more: the client left, or its deadline passed."""
        if expired:
            self.end(record, "DEADLINE_EXCEEDED", ExpiredError("the deadline passed before there was an answer"))
        else:
            self._metrics.requests.cancelled.inc()
            self.end(record, "CANCELLED")

    def _count_error(self, record: CallRecord, error: RequestError) -> None:
        """What the status alone does not say."""
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
        """Process everything recorded until now."""
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
        # Other threads may append meanwhile, but only behind these.
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
            _guarded(partial(sink.take, records, wall_offset), f"giving {len(records)} calls to {_name(sink)}")

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
    """By method too. Nearly always they are all alike."""
    keys = [(record.method, record.model) for record in records]
    different = set(keys)
    if len(different) == 1:
        return {keys[0]: records}
    return {key: [record for record, own in zip(records, keys, strict=True) if own == key] for key in different}


def _guarded(action: Callable[[], None], what: str) -> None:
    """One that fails must not cost the others, nor the thread."""
    try:
        action()
    except Exception:
        _log.exception("%s failed", what)


def _name(sink: Sink) -> str:
    return type(sink).__name__


def sample_wide_outputs(outputs: Tensors) -> Tensors:
    """Every 16th row of the wide outputs, as arrays of their own."""
    return {name: outputs[name][::STRIDE].copy() for name in WIDE_OUTPUTS if name in outputs}
