"""Routes gRPC calls on this server's own HTTP/2 (serving/http2) to their handlers, and answers them.

gRPC's Python servers pass every call from thread to thread, and accept calls before they can be rejected. This server
reads, runs and answers on one thread, and rejects within one or two runs (docs/serving-performance.md).
"""

import logging
import math
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from ghostless.contract.errors import InvalidRequestError, RequestError
from serving.engines.interface import Engine
from serving.errors import EngineError, OverloadedError, UnsupportedError
from serving.http2.headers import Metadata, trailers
from serving.http2.limits import Limits
from serving.http2.stream import ENCODINGS, MessageError, MessageTooLargeError
from serving.security.peer_certificate import PeerCertificate
from serving.telemetry.record import NOT_RECORDED, CallRecord, CallRecorder
from serving.transport.admission import NO_LIMITS, Admission, ConnectionLimits
from serving.transport.closings import NOT_OBSERVED, Closings, ConnectionObserver
from serving.transport.connection import ServedStream
from serving.transport.connections import CallHandlers, Connections
from serving.transport.poller import OnReady, Poller
from serving.transport.statuses import shortened, status_of
from serving.transport.tls import TransportTls

if TYPE_CHECKING:
    from serving.security.gate import Caller, Gate

_log = logging.getLogger(__name__)

# Errors for which the same call would fail again. Their rate is limited (serving/http2/budget.py).
_CLIENT_ERRORS = frozenset(
    (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    )
)

InlineHandler = Callable[[bytes, "InlineCall"], None]
# Serves a call on a separate thread, as soon as its headers have arrived.
StreamHandler = Callable[[ServedStream], None]


class Transport:
    """Serves the methods added to it, on connections that it accepts or receives."""

    def __init__(
        self,
        limits: Limits,
        engine: Engine,
        threads: int,
        recorder: CallRecorder = NOT_RECORDED,
        *,
        connection_limits: ConnectionLimits = NO_LIMITS,
        observer: ConnectionObserver = NOT_OBSERVED,
        tls: TransportTls | None = None,
        gate: "Gate | None" = None,
        internal: str = "",
    ) -> None:
        """`connection_limits` apply to connections accepted here; those handed over were already counted. Without
        `tls`, connections are plain text, as are those of the Unix socket at `internal`; without `gate`, there is no
        access control."""
        self._gate = gate
        self._limits = limits
        self._engine = engine
        self._recorder = recorder
        self._inline: dict[str, tuple[str, InlineHandler]] = {}
        self._threaded: dict[str, StreamHandler] = {}
        self._unary: set[str] = set()
        self._poller = Poller(engine.run_queued, threads)
        self._connections = Connections(
            self._poller,
            limits,
            CallHandlers(self._dispatch, self._too_large, self._unary),
            Admission(connection_limits),
            Closings(observer),
            tls,
            internal,
        )

    def add_inline(self, method: str, handler: InlineHandler) -> None:
        """Run `handler(message, call)` on the thread that reads the request; it answers the call now or later."""
        self._inline[method] = (method.rpartition("/")[2], handler)
        self._unary.add(method)

    def add_threaded(self, method: str, handler: StreamHandler, is_streaming: bool) -> None:
        """Serve a method on a separate thread, as soon as its headers have arrived; a method added inline stays
        inline."""
        if method not in self._inline:
            self._threaded[method] = handler
            if not is_streaming:
                self._unary.add(method)

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from a listening socket."""
        self._connections.listen(listener)

    def take_from(self, channel: socket.socket) -> None:
        """Receive connections that another process accepted, and report to it each that closed."""
        self._connections.take_from(channel)

    def close_distrusted(self, is_trusted: Callable[[PeerCertificate], bool]) -> int:
        """Close the connections whose client's certificate is no longer trusted; returns their number."""
        return self._connections.close_distrusted(is_trusted)

    def watch(self, descriptor: int, on_ready: OnReady) -> None:
        """Have `on_ready` called by the thread that polls sockets when `descriptor` is readable."""
        self._poller.add(descriptor, on_ready)

    def start(self) -> None:
        self._poller.start()

    def stop(self, grace_s: float) -> bool:
        """Reject new calls and give those in progress `grace_s` to finish; returns whether all did."""
        return self._connections.stop(grace_s)

    def _dispatch(self, stream: ServedStream) -> None:
        if stream.ended:  # a client may reset what it has just opened
            return
        path = stream.head.path
        inline = self._inline.get(path)
        if self._gate is not None and not self._admit(self._gate, stream, inline[0] if inline else ""):
            return
        if inline is None:
            threaded = self._threaded.get(path)
            if threaded is None:
                self._recorder.unknown_method()
                end_call(stream, grpc.StatusCode.UNIMPLEMENTED, f"no method {path}")
            else:
                self._begin(threaded, stream)
            return
        name, handler = inline
        overload = self._engine.check_overload()
        if overload is not None:
            self._reject_unparsed(stream, name, overload)
            return
        call = self._call(stream, name)
        try:
            if stream.head.encoding not in ENCODINGS:
                raise UnsupportedError(
                    f"grpc-encoding {stream.head.encoding!r} is not supported; use one of {', '.join(ENCODINGS)}"
                )
            message = stream.only_message(self._limits.max_message_bytes)
            handler(message, call)
        except MessageTooLargeError as error:
            call.refuse(str(error))
        except MessageError as error:
            call.fail(InvalidRequestError(f"{path} {error}"))
        except RequestError as error:
            call.fail(error)
        except Exception:
            _log.exception("%s failed", path)
            call.fail(EngineError("the request could not be handled; see the server's log"))

    def _admit(self, gate: "Gate", stream: ServedStream, name: str) -> bool:
        """Whether the call is allowed; otherwise it has been ended. `name` is empty unless it is inline."""
        try:
            stream.caller = gate.admit(stream)
        except RequestError as error:
            if name:
                self._call(stream, name).fail(error)
            else:  # not counted: names invented by clients must not become label values
                status = status_of(error)
                end_call(stream, status.code, status.details, status.trailing_metadata)
            return False
        return True

    def _reject_unparsed(self, stream: ServedStream, name: str, overload: OverloadedError) -> None:
        """Reject without parsing: time spent here is taken from requests that are served."""
        self._recorder.rejected_unparsed(name)
        status = status_of(overload, stream.head.timeout_s)
        end_call(stream, status.code, status.details, status.trailing_metadata)

    def _begin(self, handler: StreamHandler, stream: ServedStream) -> None:
        try:
            handler(stream)
        except Exception:
            _log.exception("%s failed", stream.head.path)
            end_call(stream, grpc.StatusCode.INTERNAL, "internal error; see the server's log")

    def _call(self, stream: ServedStream, name: str) -> "InlineCall":
        call = InlineCall(stream, CallRecord(name, time.monotonic()), self._recorder)
        if self._recorder.needs_metadata:
            call.record.metadata = call.metadata
        return call

    def _too_large(self, stream: ServedStream, why: MessageTooLargeError) -> None:
        """Reject a request that is too large, before all of it has arrived."""
        inline = self._inline.get(stream.head.path)
        if inline is not None:
            self._call(stream, inline[0]).refuse(str(why))
        else:  # not counted: names invented by clients must not become label values
            end_call(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, str(why))


class InlineCall:
    """One call of an inline method, with its complete request."""

    __slots__ = ("_recorder", "_stream", "deadline", "record")

    def __init__(self, stream: ServedStream, record: CallRecord, recorder: CallRecorder) -> None:
        """`record` is passed to `recorder` when the call has ended."""
        self._stream = stream
        self._recorder: CallRecorder | None = recorder
        self.record = record
        # Seconds since the epoch; infinite if the client set none.
        timeout_s = stream.head.timeout_s
        self.deadline = time.time() + timeout_s if timeout_s != math.inf else math.inf

    @property
    def metadata(self) -> Metadata:
        return self._stream.head.metadata

    @property
    def caller(self) -> "Caller | None":
        """The caller; None if there is no access control."""
        return self._stream.caller

    def watch(self, on_cancelled: Callable[[], None]) -> None:
        """Call `on_cancelled` if the client cancels or disconnects before the response."""
        self._stream.on_cancelled = lambda: self._on_client_left(on_cancelled)
        if self._stream.is_over:
            # Another thread has ended the call; the callback would keep the call and its request in memory.
            self._stream.on_cancelled = None

    def answer(self, message: bytes) -> None:
        if self._stream.caller is not None:
            self._stream.caller.end()
        if not self._stream.ended:
            recorder = self._recorder
            if recorder is not None:
                # Before the response is sent, so that every response that arrives has been counted.
                self._recorder = None
                recorder.answered(self.record)
            self._stream.connection.answer(self._stream, message)

    def fail(self, error: RequestError) -> None:
        if self._stream.caller is not None:
            self._stream.caller.end()
        status = status_of(error, self.deadline - time.time())
        if not self._stream.ended:
            self._count(lambda recorder: recorder.end(self.record, status.code.name, error))
            end_call(self._stream, status.code, status.details, status.trailing_metadata)

    def refuse(self, why: str) -> None:
        """Reject the call because its message is too large."""
        self._count(lambda recorder: recorder.refused(self.record))
        end_call(self._stream, grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    def _on_client_left(self, on_cancelled: Callable[[], None]) -> None:
        on_cancelled()
        if self._stream.caller is not None:
            self._stream.caller.end()
        self._count(lambda recorder: recorder.client_left(self.record, expired=self.deadline <= time.time()))

    def _count(self, count: Callable[[CallRecorder], None]) -> None:
        """Record how the call ended, once."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            count(recorder)


def end_call(stream: ServedStream, code: grpc.StatusCode, details: str, metadata: Metadata = ()) -> None:
    stream.is_faulty = code in _CLIENT_ERRORS
    # Details may contain a text of the client, such as the name of a method.
    stream.connection.end(stream, trailers(code.value[0], shortened(details), metadata))
