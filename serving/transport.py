"""Hot unary methods on a completion queue of their own, beside gRPC's normal server on the same port.

grpc.server hands every call from its one polling thread to a pool and back, four times per call, and grpc.aio pays for
futures instead; either costs as much as a quarter of an inference. Here the thread that receives a call also runs and
answers it. Everything else (health, reflection, listing models) stays on the unchanged grpc.server.

This stands on grpc._cython.cygrpc, the layer that grpc.server itself is written on. It is not a public interface, so
pyproject.toml pins grpcio's minor version and no other module touches it. Figures: docs/serving-performance.md.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # a C extension without types

from serving.errors import EngineError, InvalidRequestError, RequestError
from serving.observability.record import CallRecord, Metadata
from serving.observability.recorder import Recorder
from serving.statuses import status_of

_log = logging.getLogger(__name__)

_NO_FLAGS = 0
_POLL_S = 0.5
# How long all threads may be busy before another steps in, so that calls are still taken, queued or refused. Shorter
# would have it step in at every call of ranking size, and wake up for each, which costs a tenth of the throughput.
_RELIEF_S = 0.005
# Calls of a method that may be accepted before a thread comes round to accept more.
_ACCEPTED_AHEAD = 8

_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


class Call:
    """One call of a hot method: its request is there, its answer is awaited."""

    __slots__ = ("_answered", "_call", "_event", "_lock", "_on_cancel", "_recorder", "_watched", "record")

    def __init__(self, event: Any, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        # What is told of the call when it ended; None while nobody wants to know.
        self.record: CallRecord | None = None
        self._event = event
        self._call = event.call
        self._lock = threading.Lock()
        self._on_cancel: Callable[[], None] | None = None
        self._answered = False
        self._watched = False

    @property
    def deadline(self) -> float:
        """Seconds since the epoch; infinite if the client set none."""
        return float(self._event.call_details.deadline)

    @property
    def metadata(self) -> Metadata:
        return tuple(self._event.invocation_metadata)

    def watch(self, on_cancel: Callable[[], None]) -> None:
        """Have `on_cancel` called if the client leaves before the answer. Worth its price only for calls that wait."""
        with self._lock:
            if self._answered or self._watched:
                return
            self._on_cancel = on_cancel
            self._watched = True
            self._call.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)

    def answer(self, message: bytes) -> None:
        self._end(cygrpc.StatusCode.ok, b"", (), message)

    def fail(self, error: RequestError) -> None:
        status = status_of(error)
        self._end(status.code.value[0], status.details.encode(), status.trailing_metadata, None, error)

    def fail_without_message(self, error: InvalidRequestError) -> None:
        """The client sent none, or one so large that core refused it by itself; which, is known only when it ended."""
        recorder, record, self._recorder = self._recorder, self.record, None
        status = status_of(error)

        def ended(event: Any) -> None:
            if recorder is not None and record is not None:
                refused = any(
                    operation.type() == cygrpc.OperationType.receive_close_on_server and operation.cancelled()
                    for operation in event.batch_operations
                )
                if refused:
                    recorder.refused(record)
                else:
                    recorder.end(record, status.code.name, error)

        self._end(status.code.value[0], status.details.encode(), (), None, then=ended)

    def _end(
        self,
        code: int,
        details: bytes,
        trailing: tuple[tuple[str, str], ...],
        message: bytes | None,
        error: RequestError | None = None,
        then: Callable[[Any], None] | None = None,
    ) -> None:
        operations: list[Any] = [
            cygrpc.SendInitialMetadataOperation((), _NO_FLAGS),
            cygrpc.SendStatusFromServerOperation(trailing, code, details, _NO_FLAGS),
        ]
        if message is not None:
            operations.append(cygrpc.SendMessageOperation(message, _NO_FLAGS))
        with self._lock:
            if self._answered:
                return
            self._answered = True
            self._on_cancel = None  # it holds what was asked, which holds this call
            if not self._watched:
                # Core wants this once per call; here it costs no event of its own.
                operations.append(cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS))
            if self._recorder is not None and self.record is not None:
                # Before the answer leaves, so that whoever has it is counted.
                self._recorder.end(self.record, _CODE_NAMES[code], error)
            self._call.start_server_batch(operations, then or _ignore)

    def _closed(self, event: Any) -> None:
        if not event.batch_operations[0].cancelled():
            return
        with self._lock:
            if self._answered:
                return
            self._answered = True
            on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None:
            on_cancel()
        if self._recorder is not None and self.record is not None:
            self._recorder.left(self.record, expired=self.deadline <= time.time())


Handler = Callable[[bytes, Call], None]


class ColdRegistrar:
    """What generated `add_..._to_server` functions are given instead of the server.

    They register every method with it, and a hot one would then be accepted by either; as generic handlers they are
    asked only for methods that nobody registered.
    """

    def __init__(self, server: grpc.Server) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Left to the generic handlers."""


class HotMethods:
    """Serves the methods added to it, on `threads` threads and one that relieves them, as part of `server`."""

    def __init__(self, server: grpc.Server, threads: int, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self._core: Any = server._state.server  # type: ignore[attr-defined]  # see the module's docstring
        self._queue = cygrpc.CompletionQueue()
        self._core.register_completion_queue(self._queue)
        # Since when each thread has been handling an event; None while it waits for one.
        self._busy_since: list[float | None] = [None] * threads
        self._threads = [
            threading.Thread(target=self._serve, args=(place,), name=f"hot-{place}", daemon=True)
            for place in range(threads)
        ]
        self._threads.append(threading.Thread(target=self._relieve, name="hot-relief", daemon=True))
        self._handlers: dict[str, Handler] = {}
        self._stopped = threading.Event()

    def add(self, method: str, handler: Handler) -> None:
        """Before the server starts. `handler` gets the message's bytes and the call to answer, now or later."""
        self._core.register_method(method)
        self._handlers[method] = handler

    def start(self) -> None:
        """After the server started."""
        for method, handler in self._handlers.items():
            accept = _Accept(self._core, self._queue, method, handler, self._recorder)
            for _ in range(_ACCEPTED_AHEAD):
                accept.request()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """After the server stopped, which waits for calls in flight."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _serve(self, place: int) -> None:
        while not self._stopped.is_set():
            event = self._queue.poll(time.time() + _POLL_S)
            if event.completion_type != cygrpc.CompletionType.queue_timeout:
                self._busy_since[place] = time.monotonic()
                _handle(event)
                self._busy_since[place] = None
            # Keeping an event alive while polling keeps its call alive with it.
            del event

    def _relieve(self) -> None:
        """Take calls while every other thread has been running one for long."""
        while not self._stopped.wait(_RELIEF_S):
            while self._all_busy() and not self._stopped.is_set():
                event = self._queue.poll(time.time() + _RELIEF_S)
                if event.completion_type != cygrpc.CompletionType.queue_timeout:
                    _handle(event)
                del event

    def _all_busy(self) -> bool:
        long_ago = time.monotonic() - _RELIEF_S
        return all(since is not None and since < long_ago for since in self._busy_since)


def _handle(event: Any) -> None:
    try:
        event.tag(event)
    except Exception:
        _log.exception("handling a gRPC event failed")


class _Accept:
    """Accepts calls of one method and receives their request messages."""

    __slots__ = ("_core", "_handler", "_method", "_name", "_queue", "_recorder")

    def __init__(self, core: Any, queue: Any, method: str, handler: Handler, recorder: Recorder | None) -> None:
        self._core = core
        self._queue = queue
        self._method = method
        self._name = method.rpartition("/")[2]
        self._handler = handler
        self._recorder = recorder

    def request(self) -> None:
        self._core.request_registered_call(self._queue, self._queue, self._method, self)

    def __call__(self, event: Any) -> None:
        if not event.success:  # the server is shutting down
            return
        self.request()
        recorder = self._recorder
        call = Call(event, recorder)
        handler, method, name = self._handler, self._method, self._name

        def received(message_event: Any) -> None:
            if recorder is not None:
                call.record = CallRecord(name, time.monotonic())
                if recorder.needs_metadata:
                    call.record.metadata = call.metadata
            message = message_event.batch_operations[0].message()
            if message is None:
                call.fail_without_message(InvalidRequestError(f"{method} takes exactly one request message, none came"))
                return
            try:
                handler(message, call)
            except RequestError as error:
                call.fail(error)
            except Exception:
                _log.exception("%s failed", method)
                call.fail(EngineError("the request could not be handled; the server's log says why"))

        event.call.start_server_batch((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), received)


def _ignore(event: Any) -> None:
    """A batch whose end needs nothing done."""
