"""The row-counting dynamic batcher.

Whoever brings a job runs it himself if a slot is free: no other thread is woken, nothing waits. If none is free the job
queues, and a thread that ends a run goes on with what queued meanwhile, merged up to `max_batch_rows`. So batches form
under load and only there, and the thread that accepts calls never blocks behind a run as long as there is one
thread more than slots. (docs/serving-performance.md has the alternatives that were measured.)
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from serving.engines.interface import Job, ModelVersion, Tensors
from serving.errors import EngineError, ExpiredError, OverloadedError

_log = logging.getLogger(__name__)

# Runs rows through a model: (model, inputs, names of the outputs) -> those outputs.
Run = Callable[[ModelVersion, Tensors, Sequence[str]], Tensors]
_SMOOTHING = 0.1
Ending = TypeVar("Ending")


@dataclass(frozen=True)
class BatchLimits:
    slots: int
    max_batch_rows: int
    queue_rows: int
    window_s: float = 0.0


class RowBatcher:
    def __init__(self, run: Run, limits: BatchLimits) -> None:
        self._run = run
        self._limits = limits
        self._free_slots = limits.slots
        self._queue: deque[Job] = deque()
        self._queued: set[Job] = set()
        self._queued_rows = 0
        self._seconds_per_row = 0.0
        self._changed = threading.Condition()

    @property
    def queued_rows(self) -> int:
        return self._queued_rows

    def submit(self, job: Job) -> None:
        """Run `job` on the calling thread if a slot is free, else queue it; OverloadedError over the bound."""
        if job.deadline <= time.time():
            raise ExpiredError("the deadline had passed before the request could run")
        job.times.queued = since = time.monotonic()
        with self._changed:
            if self._free_slots and not self._limits.window_s:
                self._free_slots -= 1
                batch = [job]
            else:
                self._enqueue(job)
                if not self._free_slots:
                    self._changed.notify()
                    return
                self._free_slots -= 1
                self._gather()
                batch = self._take()
        while batch:
            self._execute(batch, since)
            since = time.monotonic()
            with self._changed:
                batch = self._take() if self._queue else []
                if not batch:
                    # Given back under the lock that found the queue empty, so no job can slip in between.
                    self._free_slots += 1

    def cancel(self, job: Job) -> None:
        """Free a waiting job's place; it is skipped when its turn comes."""
        with self._changed:
            job.cancelled = True
            if job in self._queued:
                self._queued.discard(job)
                self._queued_rows -= job.rows

    def _enqueue(self, job: Job) -> None:
        limit = self._limits.queue_rows
        if self._queued_rows + job.rows > limit:
            raise OverloadedError(
                f"{self._queued_rows} rows are waiting and {job.rows} more would exceed the queue of {limit}; "
                "try again later or on another server",
                retry_after_s=max(0.001, self._queued_rows * self._seconds_per_row / self._limits.slots),
            )
        self._queue.append(job)
        self._queued.add(job)
        self._queued_rows += job.rows
        job.waits()

    def _gather(self) -> None:
        """Wait until the window closes or a full batch is there."""
        closes = time.monotonic() + self._limits.window_s
        while self._queued_rows < self._limits.max_batch_rows:
            remaining = closes - time.monotonic()
            if remaining <= 0 or not self._changed.wait(remaining):
                return

    def _take(self) -> list[Job]:
        """The oldest waiting job that still wants to run, and those for the same version that fit beside it.

        What expired is told so here, before any work is spent on it.
        """
        now = time.time()
        batch: list[Job] = []
        rows = 0
        left: list[Job] = []
        while self._queue:
            job = self._queue.popleft()
            if job not in self._queued:
                continue
            if job.deadline <= now:
                self._leave_queue(job)
                _tell(job.fail, ExpiredError("the deadline passed while the request was waiting"))
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
        return batch

    def _leave_queue(self, job: Job) -> None:
        self._queued.discard(job)
        self._queued_rows -= job.rows

    def _execute(self, batch: list[Job], since: float) -> None:
        """`since` when there was a slot for the batch."""
        model = batch[0].model
        try:
            if len(batch) == 1:
                job = batch[0]
                started = time.monotonic()
                results = [self._run(model, job.inputs, job.wanted)]
            else:
                merged, wanted = merge(batch), union(batch)
                started = time.monotonic()
                results = split(batch, self._run(model, merged, wanted))
        except Exception:
            _log.exception("running %s version %d failed", model.name, model.version)
            error = EngineError(f"running model {model.name!r} failed; the server's log says why")
            for job in batch:
                _tell(job.fail, error)
            return
        computed = time.monotonic()
        rows = sum(job.rows for job in batch)
        self._seconds_per_row += _SMOOTHING * ((computed - started) / rows - self._seconds_per_row)
        for job in batch:
            times = job.times
            times.gathered = max(since, times.queued)
            times.started, times.computed, times.batch_rows = started, computed, rows
        for job, outputs in zip(batch, results, strict=True):
            _tell(job.finish, outputs)


def _tell(end: Callable[[Ending], None], ending: Ending) -> None:
    """A job that can't take its ending must not cost the slot that others wait for."""
    try:
        end(ending)
    except Exception:
        _log.exception("a job could not be told how it ended")


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
