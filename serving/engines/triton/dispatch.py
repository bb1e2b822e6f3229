"""Sends merged jobs to Triton, in parts that fit into its batches; each part is tried on up to two Tritons."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

import grpc

from ghostless.contract.arrays import Tensors
from ghostless.contract.errors import RequestError
from serving.engines.batcher import merge, split, union
from serving.engines.interface import Job, are_finite
from serving.engines.triton.catalogue import TritonVersion
from serving.engines.triton.endpoint import Endpoint
from serving.engines.triton.endpoints import EndpointBalancer
from serving.engines.triton.errors import judge
from serving.engines.triton.infer_calls import InferCall
from serving.engines.triton.wire import join
from serving.errors import EngineError, ExpiredError

_log = logging.getLogger(__name__)

_ATTEMPTS = 2
# Upper limit for the timeout in a message; also used if there is no deadline.
_LONGEST_S = 86_400.0


class Dispatch:
    __slots__ = (
        "_balancer",
        "_calls",
        "_deadline",
        "_done",
        "_inputs",
        "_jobs",
        "_lock",
        "_missing",
        "_model",
        "_on_end",
        "_on_free",
        "_parts",
        "_wanted",
    )

    def __init__(
        self,
        balancer: EndpointBalancer,
        jobs: Sequence[Job],
        on_free: Callable[[], None],
        on_end: Callable[[Sequence[Job]], None],
    ) -> None:
        """`on_free` is called when an endpoint has room for another call, `on_end` with jobs that have ended."""
        model = jobs[0].model
        assert isinstance(model, TritonVersion), "a job's model comes from `resolve`"
        self._balancer = balancer
        self._jobs = list(jobs)
        self._on_free = on_free
        self._on_end = on_end
        self._model = model
        self._inputs = jobs[0].inputs if len(jobs) == 1 else merge(jobs)
        self._wanted = union(jobs)
        self._deadline = max(job.deadline for job in jobs)
        rows = sum(job.rows for job in jobs)
        self._parts: list[slice | Tensors] = [
            slice(start, min(start + model.max_rows, rows)) for start in range(0, rows, model.max_rows)
        ]
        self._missing = len(self._parts)
        self._calls: dict[int, InferCall] = {}
        self._done = False
        self._lock = threading.Lock()
        now = time.monotonic()
        for job in jobs:
            job.times.gathered, job.times.batch_rows = now, rows

    def start(self, endpoint: Endpoint) -> None:
        """Send the first part to `endpoint`, which was reserved for it, and the others to the least busy endpoints."""
        self._send(0, [], endpoint)
        for index in range(1, len(self._parts)):
            self._send(index, [])

    def cancel(self, job: Job) -> None:
        """The client of a job cancelled or disconnected; if all have, cancel the calls so that Triton can drop them."""
        self._on_end([job])
        if all(each.cancelled for each in self._jobs) and self._end():
            self._cancel_calls()

    def _send(
        self, index: int, tried: list[Endpoint], endpoint: Endpoint | None = None, why: RequestError | None = None
    ) -> None:
        part, now = self._parts[index], time.time()
        assert isinstance(part, slice)
        rows = part.stop - part.start
        endpoint = endpoint or self._balancer.take(self._model.name, self._model.version, tried)
        if endpoint is None:
            self._fail(why or self._balancer.unavailable_error(self._model.name, self._model.version))
            return
        taken = endpoint
        self._balancer.add_rows(taken, rows)

        def on_end(code: grpc.StatusCode, details: str, message: bytes) -> None:
            self._ended(index, [*tried, taken], rows, code, details, message)

        if index == 0 and not tried:
            self._stamp("started")
        left_s = self._deadline - now
        timeout_s = left_s if left_s < _LONGEST_S else None
        try:
            message = self._model.wire.encode(self._inputs, self._wanted, part, timeout_s)
            call = taken.infer(message, None if timeout_s is None else self._deadline, on_end)
        except Exception:  # the channel was closed meanwhile, or the rows can't be encoded
            _log.exception("sending a request to Triton %s failed", taken.address)
            self._balancer.release(taken, rows)
            self._fail(EngineError("the request could not be sent to Triton; see the server's log"))
            return
        self._calls[index] = call
        if self._done:
            call.cancel()

    def _ended(
        self, index: int, tried: list[Endpoint], rows: int, code: grpc.StatusCode, details: str, message: bytes
    ) -> None:
        endpoint = tried[-1]
        self._balancer.release(endpoint, rows)
        self._calls.pop(index, None)
        try:
            if code is grpc.StatusCode.OK:
                endpoint.breaker.succeeded()
                # Send the next call to Triton first; the responses of this one are built while it runs.
                self._on_free()
                self._take(index, self._model.wire.decode(message, self._wanted, rows))
            elif not self._done:
                self._retry_or_fail(index, tried, code, details)
        except RequestError as error:
            self._fail(error)
        except Exception:
            _log.exception("cannot use the response of Triton %s", endpoint.address)
            self._fail(EngineError("Triton's response could not be used; see the server's log"))
        if code is not grpc.StatusCode.OK:
            # Only now, because the endpoint's state is up to date.
            self._on_free()

    def _retry_or_fail(self, index: int, tried: list[Endpoint], code: grpc.StatusCode, details: str) -> None:
        endpoint = tried[-1]
        verdict = judge(code, details, endpoint.address)
        if verdict.blame:
            endpoint.breaker.failed()
            endpoint.mark_lost()
        if verdict.stale:
            endpoint.probe_soon()
        if isinstance(verdict.error, EngineError):
            _log.error("Triton %s answered %s: %s", endpoint.address, code.name, details)
        if not verdict.elsewhere or len(tried) == _ATTEMPTS:
            self._fail(verdict.error)
        elif self._deadline <= time.time():
            self._fail(ExpiredError("the deadline passed while Triton had the request"))
        else:
            endpoint.retries += 1
            self._send(index, tried, why=verdict.error)

    def _take(self, index: int, outputs: Tensors) -> None:
        with self._lock:
            self._parts[index] = outputs
            self._missing -= 1
            if self._missing:
                return
        if self._end():
            outputs = join([part for part in self._parts if not isinstance(part, slice)])
            self._stamp("computed")
            known_finite = are_finite(outputs)
            for job, own in zip(self._jobs, split(self._jobs, outputs), strict=True):
                if not job.cancelled:
                    job.finish(own, known_finite)

    def _fail(self, error: RequestError) -> None:
        if self._end():
            self._cancel_calls()
            for job in self._jobs:
                if not job.cancelled:
                    job.fail(error)

    def _stamp(self, step: str) -> None:
        now = time.monotonic()
        for job in self._jobs:
            setattr(job.times, step, now)

    def _end(self) -> bool:
        """Mark the dispatch as ended; returns whether the caller must notify the jobs, which happens once."""
        with self._lock:
            if self._done:
                return False
            self._done = True
        self._on_end(self._jobs)
        return True

    def _cancel_calls(self) -> None:
        for call in list(self._calls.values()):
            call.cancel()
