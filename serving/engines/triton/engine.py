"""The triton engine: jobs go to one of many Triton servers, which batch and run them.

Each Triton gets only a few calls at a time; jobs that arrive meanwhile wait and share the next call, so that under load
both sides handle fewer, larger messages. When a call ends, its jobs are answered on the channel's thread, so no thread
waits for Triton.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from ghostless.contract import repository
from ghostless.contract.errors import GhostlessError
from serving.engines.interface import EndpointState, EngineStatistics, Job, ModelStatus, ModelVersion
from serving.engines.triton.breaker import Circuit
from serving.engines.triton.catalogue import Catalogue, TritonVersion
from serving.engines.triton.channels import TritonTls
from serving.engines.triton.dispatch import Dispatch
from serving.engines.triton.endpoint import Endpoint
from serving.engines.triton.endpoints import EndpointBalancer
from serving.errors import ExpiredError, OverloadedError, UnavailableError

_log = logging.getLogger(__name__)

_RESOLVE_S = 5.0
_RETRY_AFTER_S = 0.05
_PATIENCE_S = 0.05
_BREAKER_NUMBERS = {Circuit.CLOSED: 0, Circuit.HALF_OPEN: 1, Circuit.OPEN: 2}


class TritonEngine:
    def __init__(
        self,
        addresses: Sequence[str],
        *,
        queue_rows: int,
        most_calls: int = 2,
        poll_s: float = 1.0,
        default_model: str = "",
        root: Path | None = None,
        tls: TritonTls | None = None,
    ) -> None:
        """`root` is the model repository, if the facade has it, for metadata that Triton's configs lack. Without
        `tls`, calls are plain text."""
        self._queue_rows = queue_rows
        self._most_calls = most_calls
        self._root = root
        self._balancer = EndpointBalancer(
            addresses, lambda address: Endpoint(address, poll_s, self._on_endpoint_change, tls), _RESOLVE_S
        )
        self._catalogue = Catalogue(default_model, self._properties, self._pointer)
        self._changed = threading.Condition()
        self._lock = threading.Lock()
        self._outstanding_rows = 0
        self._has_run = False
        # All jobs that have not ended, with the dispatch that sends them to Triton; None while a job waits in the
        # queue.
        self._running: dict[Job, Dispatch | None] = {}
        self._waiting: deque[Job] = deque()
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch_clients, name="triton clients", daemon=True)

    def start(self) -> None:
        """Returns immediately; the Tritons are contacted in the background."""
        self._balancer.start()
        self._watcher.start()

    def wait_ready(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(self.is_ready, timeout_s)

    def stop(self) -> None:
        self._stopped.set()
        self._watcher.join()
        self._balancer.stop()

    def refresh(self) -> None:
        """Poll the Tritons now instead of at the next interval."""
        for endpoint in self._balancer.endpoints:
            endpoint.probe_soon()

    def resolve(self, model: str, version: int) -> ModelVersion:
        snapshot = self._catalogue.snapshot
        if not snapshot.models:
            raise UnavailableError("no Triton server has been reached yet")
        return snapshot.resolve(model, version)

    def models(self) -> Sequence[ModelStatus]:
        return self._catalogue.snapshot.statuses()

    def default_model(self) -> str:
        return self._catalogue.snapshot.default_model()

    def is_ready(self) -> bool:
        return self._catalogue.snapshot.is_ready() and any(endpoint.ready for endpoint in self._balancer.endpoints)

    @property
    def outstanding_rows(self) -> int:
        """Rows of all jobs that have not ended: queued, or sent to Triton."""
        return self._outstanding_rows

    def statistics(self) -> EngineStatistics:
        endpoints = {
            endpoint.address: EndpointState(
                endpoint.ready, _BREAKER_NUMBERS[endpoint.breaker.circuit], endpoint.retries
            )
            for endpoint in self._balancer.endpoints
        }
        return EngineStatistics(self._outstanding_rows, endpoints=endpoints, has_run=self._has_run)

    def endpoints(self) -> Mapping[str, bool]:
        """The address of each Triton, and whether it is ready."""
        return {endpoint.address: endpoint.ready for endpoint in self._balancer.endpoints}

    def submit(self, job: Job) -> None:
        if job.deadline <= time.time():
            raise ExpiredError("the deadline had passed before the request could run")
        job.times.queued = time.monotonic()
        with self._lock:
            if self._outstanding_rows + job.rows > self._queue_rows:
                raise OverloadedError(
                    f"{self._outstanding_rows} rows are queued or running on Triton and {job.rows} more would exceed "
                    f"{self._queue_rows}; try again later or on another server",
                    retry_after_s=_RETRY_AFTER_S,
                )
            self._outstanding_rows += job.rows
            self._running[job] = None
            self._waiting.append(job)
        self._pump()

    def check_overload(self) -> None:
        """Never rejects: every request is parsed."""

    def run_queued(self) -> None:
        """Nothing to do: jobs run in Triton, not on the calling thread."""

    def cancel(self, job: Job) -> None:
        with self._lock:
            job.cancelled = True
            dispatch = self._running.get(job)
        if dispatch is None:
            self._forget([job])
        else:
            dispatch.cancel(job)

    def _pump(self) -> None:
        """Send waiting jobs, as far as the Tritons have room for calls."""
        while True:
            with self._lock:
                expired = self._drop_done()
                head = self._waiting[0] if self._waiting else None
                found = head and self._balancer.take_free(head.model.name, head.model.version, self._most_calls)
                batch = self._next_batch() if head is not None and found != "busy" else []
                dispatch = Dispatch(self._balancer, batch, self._pump, self._forget) if batch else None
                self._running.update(dict.fromkeys(batch, dispatch))
            for job in expired:
                self._forget([job])
                job.fail(ExpiredError("the deadline passed while the request was waiting"))
            if dispatch is None:
                return
            if isinstance(found, Endpoint):
                dispatch.start(found)
                continue
            error = self._balancer.unavailable_error(batch[0].model.name, batch[0].model.version)
            self._forget(batch)
            for job in batch:
                job.fail(error)

    def _drop_done(self) -> list[Job]:
        """Remove jobs that need not run from the head of the queue; returns the expired ones, which must be failed."""
        expired, now = [], time.time()
        while self._waiting and (self._waiting[0].cancelled or self._waiting[0].deadline <= now):
            job = self._waiting.popleft()
            if not job.cancelled:
                expired.append(job)
        return expired

    def _next_batch(self) -> list[Job]:
        """The oldest waiting job, and jobs for the same version that fit into the same call."""
        head = self._waiting.popleft()
        assert isinstance(head.model, TritonVersion), "a job's model comes from `resolve`"
        batch, rows, left = [head], head.rows, []
        while self._waiting and rows < head.model.max_rows:
            job = self._waiting.popleft()
            if job.model is head.model and rows + job.rows <= head.model.max_rows:
                if not job.cancelled:
                    batch.append(job)
                    rows += job.rows
            else:
                left.append(job)
        self._waiting.extendleft(reversed(left))
        return batch

    def _forget(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            for job in jobs:
                # A cancelled job may have been removed before the others of its call.
                if job in self._running:
                    del self._running[job]
                    self._outstanding_rows -= job.rows
            self._has_run = True

    def _watch_clients(self) -> None:
        """Watch for cancellation of calls that take long, so that Triton does not run jobs that were cancelled.

        Watching costs one more event per call, which is not worth it for most calls, because they are short.
        """
        seen: set[Job] = set()
        watched: set[Job] = set()
        while not self._stopped.wait(_PATIENCE_S):
            running = set(self._running.copy())
            for job in (running & seen) - watched:
                job.on_queued()
            watched, seen = running & seen, running

    def _on_endpoint_change(self) -> None:
        self._catalogue.update([endpoint.models for endpoint in self._balancer.endpoints if endpoint.ready])
        with self._changed:
            self._changed.notify_all()
        self._pump()

    def _properties(self, name: str, version: int) -> Mapping[str, str] | None:
        if self._root is None:
            return None
        from serving.engines.embedded import load_model  # imports ONNX Runtime, which is rarely needed here

        file = self._root / name / str(version) / repository.MODEL_FILE
        return load_model(file, name, version, warm_up_rows=()).properties if file.is_file() else None

    def _pointer(self, name: str) -> int:
        if self._root is None:
            return 0
        try:
            entry = repository.scan(self._root).get(name)
        except GhostlessError as error:
            _log.warning("%s", error)
            return 0
        return entry.in_service if entry and entry.pointer else 0
