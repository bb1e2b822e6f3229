"""The triton engine: jobs go to one of many Triton servers, which batch and run them.

A call's end answers the job on its channel's own thread, so no thread waits for Triton.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc

from serving import repository
from serving.engines.interface import Job, ModelStatus, ModelVersion, Tensors
from serving.engines.triton.calls import InferCall
from serving.engines.triton.catalogue import Catalogue, TritonVersion
from serving.engines.triton.endpoint import Endpoint
from serving.engines.triton.errors import judge
from serving.engines.triton.pool import EndpointPool
from serving.engines.triton.wire import decode, encode, join
from serving.errors import EngineError, ExpiredError, OverloadedError, RequestError, ServingError, UnavailableError

_log = logging.getLogger(__name__)

_ATTEMPTS = 2
_RESOLVE_S = 5.0
_RETRY_AFTER_S = 0.05
_LONGEST_S = 86_400.0
_PATIENCE_S = 0.05


class TritonEngine:
    def __init__(
        self,
        addresses: Sequence[str],
        *,
        queue_rows: int,
        poll_s: float = 1.0,
        default_model: str = "",
        root: Path | None = None,
    ) -> None:
        """`root` is the model repository where the facade has it, for what Triton does not say of its models."""
        self._queue_rows = queue_rows
        self._root = root
        self._pool = EndpointPool(addresses, lambda address: Endpoint(address, poll_s, self._look), _RESOLVE_S)
        self._catalogue = Catalogue(default_model, self._properties, self._pointer)
        self._changed = threading.Condition()
        self._lock = threading.Lock()
        self._outstanding_rows = 0
        self._running: dict[Job, _Dispatch] = {}
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch_clients, name="triton clients", daemon=True)

    def start(self) -> None:
        """Returns at once: the Tritons are looked for in the background."""
        self._pool.start()
        self._watcher.start()

    def wait_ready(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(self.ready, timeout_s)

    def stop(self) -> None:
        self._stopped.set()
        self._watcher.join()
        self._pool.stop()

    def refresh(self) -> None:
        """Look at the Tritons now instead of at the next poll."""
        for endpoint in self._pool.endpoints:
            endpoint.look()

    def resolve(self, model: str, version: int) -> ModelVersion:
        return self._catalogue.resolve(model, version)

    def models(self) -> Sequence[ModelStatus]:
        return self._catalogue.models()

    def default_model(self) -> str:
        return self._catalogue.default_model()

    def ready(self) -> bool:
        return self._catalogue.complete() and any(endpoint.ready for endpoint in self._pool.endpoints)

    @property
    def outstanding_rows(self) -> int:
        """Rows that Triton has and that somebody still waits for."""
        return self._outstanding_rows

    def endpoints(self) -> Mapping[str, bool]:
        """Each Triton's address and whether it is ready."""
        return {endpoint.address: endpoint.ready for endpoint in self._pool.endpoints}

    def submit(self, job: Job) -> None:
        if job.deadline <= time.time():
            raise ExpiredError("the deadline had passed before the request could run")
        dispatch = _Dispatch(self, job)
        with self._lock:
            if self._outstanding_rows + job.rows > self._queue_rows:
                raise OverloadedError(
                    f"{self._outstanding_rows} rows are with Triton and {job.rows} more would exceed "
                    f"{self._queue_rows}; try again later or on another server",
                    retry_after_s=_RETRY_AFTER_S,
                )
            self._outstanding_rows += job.rows
            self._running[job] = dispatch
        dispatch.start(self._pool)

    def cancel(self, job: Job) -> None:
        job.cancelled = True
        dispatch = self._running.get(job)
        if dispatch is not None:
            dispatch.cancel()

    def ended(self, job: Job) -> None:
        with self._lock:
            if self._running.pop(job, None) is not None:
                self._outstanding_rows -= job.rows

    def _watch_clients(self) -> None:
        """Have the clients of calls that take long watched, so that Triton need not run for those that left.

        Watching costs a call an event more, which most calls are too short to be worth.
        """
        seen: set[Job] = set()
        watched: set[Job] = set()
        while not self._stopped.wait(_PATIENCE_S):
            running = set(self._running.copy())
            for job in (running & seen) - watched:
                job.waits()
            watched, seen = running & seen, running

    def _look(self) -> None:
        self._catalogue.update([endpoint.models for endpoint in self._pool.endpoints if endpoint.ready])
        with self._changed:
            self._changed.notify_all()

    def _properties(self, name: str, version: int) -> Mapping[str, str] | None:
        if self._root is None:
            return None
        from serving.engines.session import load_model  # it loads ONNX Runtime, which is seldom needed here

        file = self._root / name / str(version) / repository.MODEL_FILE
        return load_model(file, name, version, warm_up_rows=()).properties if file.is_file() else None

    def _pointer(self, name: str) -> int:
        if self._root is None:
            return 0
        try:
            entry = repository.scan(self._root).get(name)
        except ServingError as error:
            _log.warning("%s", error)
            return 0
        return entry.in_service if entry and entry.pointer else 0


class _Dispatch:
    """One job on its way: in pieces that Triton's batches can hold, each tried on up to two Tritons."""

    __slots__ = ("_calls", "_done", "_engine", "_job", "_lock", "_missing", "_parts", "_pool")

    def __init__(self, engine: TritonEngine, job: Job) -> None:
        assert isinstance(job.model, TritonVersion), "jobs carry what `resolve` returned"
        self._engine = engine
        self._job = job
        step = job.model.max_rows
        self._parts: list[slice | Tensors] = [slice(i, min(i + step, job.rows)) for i in range(0, job.rows, step)]
        self._missing = len(self._parts)
        self._calls: dict[int, InferCall] = {}
        self._done = False
        self._lock = threading.Lock()

    def start(self, pool: EndpointPool) -> None:
        self._pool = pool
        for index in range(len(self._parts)):
            self._send(index, [])

    def cancel(self) -> None:
        """The client left: nobody is to be told, Triton may drop what it has not run yet."""
        if self._end():
            for call in list(self._calls.values()):
                call.cancel()

    def _send(self, index: int, tried: list[Endpoint], why: RequestError | None = None) -> None:
        part, job, now = self._parts[index], self._job, time.time()
        assert isinstance(part, slice)
        if job.deadline <= now:
            self._fail(ExpiredError("the deadline passed while Triton had the request"))
            return
        rows = part.stop - part.start
        endpoint = self._pool.take(job.model.name, job.model.version, rows, tried)
        if endpoint is None:
            self._fail(why or self._nobody())
            return
        # A call without deadline has one in the far future, which fits no field.
        timeout_s = job.deadline - now if job.deadline - now < _LONGEST_S else None

        def on_end(code: grpc.StatusCode, details: str, message: bytes) -> None:
            self._ended(index, [*tried, endpoint], rows, code, details, message)

        try:
            call = endpoint.infer(encode(job, part, timeout_s), None if timeout_s is None else job.deadline, on_end)
        except Exception:  # a channel that was closed meanwhile, or rows that can't be encoded
            _log.exception("asking Triton %s failed", endpoint.address)
            self._pool.give_back(endpoint, rows)
            self._fail(EngineError("the request could not be sent to Triton; the server's log says why"))
            return
        self._calls[index] = call
        if self._done:
            call.cancel()

    def _ended(
        self, index: int, tried: list[Endpoint], rows: int, code: grpc.StatusCode, details: str, message: bytes
    ) -> None:
        endpoint = tried[-1]
        self._pool.give_back(endpoint, rows)
        try:
            if code is grpc.StatusCode.OK:
                endpoint.breaker.succeeded()
                self._take(index, decode(message, self._job, rows))
            elif not self._done:
                self._retry_or_fail(index, tried, code, details)
        except RequestError as error:
            self._fail(error)
        except Exception:
            _log.exception("the answer of Triton %s can't be used", endpoint.address)
            self._fail(EngineError("Triton's answer could not be used; the server's log says why"))

    def _retry_or_fail(self, index: int, tried: list[Endpoint], code: grpc.StatusCode, details: str) -> None:
        endpoint = tried[-1]
        verdict = judge(code, details, endpoint.address)
        if verdict.blame:
            endpoint.breaker.failed()
            if verdict.elsewhere:
                endpoint.lost()
        if verdict.stale:
            endpoint.look()
        if isinstance(verdict.error, EngineError):
            _log.error("Triton %s answered %s: %s", endpoint.address, code.name, details)
        if verdict.elsewhere and len(tried) < _ATTEMPTS:
            self._send(index, tried, verdict.error)
        else:
            self._fail(verdict.error)

    def _take(self, index: int, outputs: Tensors) -> None:
        with self._lock:
            self._parts[index] = outputs
            self._missing -= 1
            if self._missing:
                return
        if self._end():
            self._job.finish(join([part for part in self._parts if not isinstance(part, slice)]))

    def _fail(self, error: RequestError) -> None:
        if self._end():
            for call in list(self._calls.values()):
                call.cancel()
            self._job.fail(error)

    def _end(self) -> bool:
        """Whether it was for the caller to end it: a job is told once."""
        with self._lock:
            if self._done:
                return False
            self._done = True
        self._engine.ended(self._job)
        return True

    def _nobody(self) -> UnavailableError:
        states = ", ".join(
            f"{address} {'has not this version' if ready else 'is not ready'}"
            for address, ready in self._engine.endpoints().items()
        )
        model = self._job.model
        return UnavailableError(f"no Triton can serve model {model.name!r} version {model.version}: {states}")
