"""The row-counting dynamic batcher.

Jobs queue, and any thread that has time runs them: the threads that read requests do so between two reads, so that no
thread is woken for a job. All that came while a batch ran is there when the next is taken, merged up to
`max_batch_rows`: batches form under load and only there. (docs/serving-performance.md has what was measured.)
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec

import numpy as np

from ghostless.contract.arrays import Tensors
from serving.engines.interface import Job, ModelVersion, are_finite
from serving.errors import EngineError, ExpiredError, OverloadedError

_log = logging.getLogger(__name__)

# Runs rows through a model: (model, inputs, names of the outputs) -> those outputs.
RunModel = Callable[[ModelVersion, Tensors, Sequence[str]], Tensors]
_SMOOTHING = 0.1
# A queue that was full takes requests again when one in so many of its rows is free.
_REOPENS = 4
EndArgs = ParamSpec("EndArgs")


@dataclass(frozen=True)
class BatchLimits:
    slots: int
    max_batch_rows: int
    queue_rows: int
    window_s: float = 0.0


class RowBatcher:
    def __init__(self, run: RunModel, limits: BatchLimits) -> None:
        self._run = run
        self._limits = limits
        self._free_slots = limits.slots
        self._queue: deque[Job] = deque()
        self._queued: set[Job] = set()
        self._queued_rows = 0
        # Of the last request that was refused, while there is no room for it.
        self._refused_rows = 0
        self._free_since = 0.0
        self._seconds_per_row = 0.0
        self._lock = threading.Lock()

    @property
    def queued_rows(self) -> int:
        return self._queued_rows

    @property
    def has_run(self) -> bool:
        return self._seconds_per_row > 0

    def submit(self, job: Job) -> None:
        """Queue it for the next `run_queued`; OverloadedError over the bound."""
        if job.deadline <= time.time():
            raise ExpiredError("the deadline had passed before the request could run")
        job.times.queued = time.monotonic()
        limit = self._limits.queue_rows
        with self._lock:
            if self._queued_rows + job.rows > limit and self._queued_rows:
                self._refused_rows = job.rows
                raise self._overloaded(
                    f"{self._queued_rows} rows are waiting and {job.rows} more would exceed the queue of {limit}"
                )
            self._queue.append(job)
            self._queued.add(job)
            self._queued_rows += job.rows
        job.on_queued()

    def check_overload(self) -> OverloadedError | None:
        """The error to reject a request with before it is parsed; None while there is room.

        Since one was refused, the queue has had no room for it, or little.

        Reading a request only to refuse it costs what others wait for, and the one that fills the queue again is read:
        so it opens for several. And small ones that would fit must not be the only ones that a full queue lets in.
        """
        if not self._refused_rows:
            return None
        limit = self._limits.queue_rows
        if self._queued_rows + max(self._refused_rows, limit // _REOPENS) > limit and self._queued_rows:
            return self._overloaded(f"the queue of {limit} rows is full")
        self._refused_rows = 0
        return None

    def _overloaded(self, why: str) -> OverloadedError:
        wait_s = self._queued_rows * self._seconds_per_row / self._limits.slots
        return OverloadedError(f"{why}; try again later or on another server", retry_after_s=max(0.001, wait_s))

    def run_queued(self) -> float | None:
        """Run the oldest batch on the calling thread, if a slot is free and its window has closed.

        Returns after how many seconds there is more to do; None if nothing waits, or all slots are taken.
        """
        if not self._queue:
            return None
        with self._lock:
            if not self._free_slots:
                return None
            open_s = self._window_open_s()
            if open_s > 0:
                return open_s
            batch, expired = self._take()
            self._free_slots -= bool(batch)
        for job in expired:
            _end(job.fail, ExpiredError("the deadline passed while the request was waiting"))
        if batch:
            try:
                self._execute(batch)
            finally:
                with self._lock:
                    self._free_slots += 1
                    self._free_since = time.monotonic()
        return 0.0 if self._queue else None

    def cancel(self, job: Job) -> None:
        """Free a waiting job's place; it is skipped when its turn comes."""
        with self._lock:
            job.cancelled = True
            job.inputs = {}  # its place in the queue is found later, its memory is wanted now
            if job in self._queued:
                self._queued.discard(job)
                self._queued_rows -= job.rows

    def _window_open_s(self) -> float:
        """How long the oldest job still waits for others to share its batch."""
        if not self._limits.window_s or self._queued_rows >= self._limits.max_batch_rows or not self._queued:
            return 0.0
        oldest = next(job for job in self._queue if job in self._queued)
        return oldest.times.queued + self._limits.window_s - time.monotonic()

    def _take(self) -> tuple[list[Job], list[Job]]:
        """The oldest waiting job that still wants to run, and those for the same version that fit beside it.

        And those that expired meanwhile, which are failed before any work is spent on others.
        """
        now = time.time()
        batch: list[Job] = []
        expired: list[Job] = []
        rows = 0
        left: list[Job] = []
        while self._queue:
            job = self._queue.popleft()
            if job not in self._queued:
                continue
            if job.deadline <= now:
                self._leave_queue(job)
                expired.append(job)
                continue
            if batch and (job.model is not batch[0].model or rows + job.rows > self._limits.max_batch_rows):
                left.append(job)
                if job.model is batch[0].model:
                    break
                continue
            self._leave_queue(job)
            batch.append(job)
            rows += job.rows
            if rows >= self._limits.max_batch_rows:
                break
        self._queue.extendleft(reversed(left))
        return batch, expired

    def _leave_queue(self, job: Job) -> None:
        self._queued.discard(job)
        self._queued_rows -= job.rows

    def _execute(self, batch: list[Job]) -> None:
        model = batch[0].model
        try:
            if len(batch) == 1:
                job = batch[0]
                started = time.monotonic()
                outputs = self._run(model, job.inputs, job.wanted)
                results = [outputs]
            else:
                merged, wanted = merge(batch), union(batch)
                started = time.monotonic()
                outputs = self._run(model, merged, wanted)
                results = split(batch, outputs)
            computed = time.monotonic()
            known_finite = are_finite(outputs)
        except Exception:
            _log.exception("running %s version %d failed", model.name, model.version)
            error = EngineError(f"running model {model.name!r} failed; see the server's log")
            for job in batch:
                _end(job.fail, error)
            return
        rows = sum(job.rows for job in batch)
        self._seconds_per_row += _SMOOTHING * ((computed - started) / rows - self._seconds_per_row)
        for job in batch:
            times = job.times
            times.gathered = max(times.queued, self._free_since)
            times.started, times.computed, times.batch_rows = started, computed, rows
        for job, own in zip(batch, results, strict=True):
            _end(job.finish, own, known_finite)


def _end(callback: Callable[EndArgs, None], *arguments: EndArgs.args, **named: EndArgs.kwargs) -> None:
    """A job that can't take its ending must not cost the slot that others wait for."""
    try:
        callback(*arguments, **named)
    except Exception:
        _log.exception("notifying a request of its result failed")


def merge(batch: Sequence[Job]) -> dict[str, np.ndarray]:
    """The jobs' rows one below the other."""
    return {name: np.concatenate([job.inputs[name] for job in batch]) for name in batch[0].inputs}


def union(batch: Sequence[Job]) -> tuple[str, ...]:
    """Every output that some job of the batch wants."""
    first = batch[0].wanted
    if all(job.wanted == first for job in batch):
        return first
    return tuple(dict.fromkeys(name for job in batch for name in job.wanted))


def split(batch: Sequence[Job], outputs: Tensors) -> list[Tensors]:
    """Each job's own rows again, of the outputs that it wants."""
    results: list[Tensors] = []
    start = 0
    for job in batch:
        results.append({name: outputs[name][start : start + job.rows] for name in job.wanted})
        start += job.rows
    return results
