"""gRPC calls on this server's own HTTP/2 (serving/http2): which method goes where, and how each call is answered.

gRPC's own Python servers hand every call from thread to thread, and take calls in before anybody can refuse them; this
one reads, runs and answers on one thread, and refuses within one run. Figures: docs/serving-performance.md.
"""

import logging
import math
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT

import grpc

from serving.engines.interface import Engine
from serving.errors import EngineError, InvalidRequestError, RequestError
from serving.http2.connection import Connection, Limits
from serving.http2.headers import trailers
from serving.http2.poller import Poller
from serving.http2.stream import ENCODINGS, MessageError, MessageTooLargeError, Stream
from serving.observability.record import CallRecord, Metadata
from serving.observability.recorder import Recorder
from serving.statuses import status_of

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
_DRAIN_POLL_S = 0.01
# A client that vanished without a word is found out after about this long.
_KEEPALIVE_S = 60


class Call:
    """One call of a hot method: its request is there, its answer is awaited."""

    __slots__ = ("_ended", "_recorder", "_stream", "deadline", "record")

    def __init__(self, stream: Stream, recorder: Recorder | None = None) -> None:
        self._stream = stream
        self._recorder = recorder
        self._ended = False
        # Seconds since the epoch; infinite if the client set none.
        timeout_s = stream.head.timeout_s
        self.deadline = time.time() + timeout_s if timeout_s != math.inf else math.inf
        # What is told of the call when it ended; None while nobody wants to know.
        self.record: CallRecord | None = None

    @property
    def metadata(self) -> Metadata:
        return self._stream.head.metadata

    def watch(self, on_cancel: Callable[[], None]) -> None:
        """Have `on_cancel` called if the client leaves before the answer."""
        self._stream.on_cancel = lambda: self._left(on_cancel)
        if self._stream.ended:
            # Another thread was quicker; what refers to the call and its request would keep them.
            self._stream.on_cancel = None

    def answer(self, message: bytes) -> None:
        if not self._stream.ended:
            # Before the answer leaves, so that whoever has it is counted.
            self._count("OK")
            self._stream.connection.answer(self._stream, message)

    def fail(self, error: RequestError) -> None:
        status = status_of(error)
        if not self._stream.ended:
            self._count(status.code.name, error)
            end_call(self._stream, status.code, status.details, status.trailing_metadata)

    def refuse(self, why: str) -> None:
        """The message is too large to be taken."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None and self.record is not None:
            recorder.refused(self.record)
        end_call(self._stream, grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    def _count(self, code: str, error: RequestError | None = None) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None and self.record is not None:
            recorder.end(self.record, code, error)

    def _left(self, on_cancel: Callable[[], None]) -> None:
        on_cancel()
        recorder, self._recorder = self._recorder, None
        if recorder is not None and self.record is not None:
            recorder.left(self.record, expired=self.deadline <= time.time())


Handler = Callable[[bytes, Call], None]
# What is not hot: a call by its stream, from its first header on.
ColdHandler = Callable[[Stream], None]


def end_call(stream: Stream, code: grpc.StatusCode, details: str, metadata: Metadata = ()) -> None:
    stream.connection.end(stream, trailers(code.value[0], details, metadata))


class Transport:
    """Serves the methods added to it, on the connections that it is given or accepts."""

    def __init__(self, limits: Limits, engine: Engine, threads: int, recorder: Recorder | None = None) -> None:
        self._limits = limits
        self._engine = engine
        self._recorder = recorder
        self._hot: dict[str, tuple[str, Handler]] = {}
        self._cold: dict[str, ColdHandler] = {}
        self._streaming: set[str] = set()
        self._poller = Poller(engine.work, threads)
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._connections: dict[int, Connection] = {}
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._channel: socket.socket | None = None
        self._on_closed: Callable[[], None] = lambda: None

    def add(self, method: str, handler: Handler) -> None:
        """A hot one: `handler` gets the message's bytes and the call to answer, now or later."""
        self._hot[method] = (method.rpartition("/")[2], handler)

    def add_cold(self, method: str, handler: ColdHandler, is_streaming: bool) -> None:
        """Any other; hot ones stay hot."""
        if method not in self._hot:
            self._cold[method] = handler
            if is_streaming:
                self._streaming.add(method)

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from a listening socket."""
        listener.setblocking(False)
        self._listener = listener
        self._poller.add(listener.fileno(), self._accept)

    def take_from(self, channel: socket.socket) -> None:
        """Take connections that another process accepted, and tell it of each that closed with one byte."""
        channel.setblocking(False)
        self._channel = channel
        self._on_closed = lambda: _tell(channel)
        self._poller.add(channel.fileno(), lambda events: self._take(channel))

    def start(self) -> None:
        self._poller.start()

    def stop(self, grace_s: float) -> bool:
        """No new calls; those under way have `grace_s` to finish. Whether all did."""
        if self._listener is not None:
            self._poller.remove(self._listener.fileno())
            self._listener.close()
        if self._channel is not None:
            # Its other end hears that no more connections are taken here.
            self._poller.remove(self._channel.fileno())
            self._channel.close()
        for connection in self._all():
            connection.drain()
        until = time.monotonic() + grace_s
        while self._all() and time.monotonic() < until:
            if not self._is_busy() and time.monotonic() > until - grace_s + 0.5:
                break  # clients that say nothing to our farewell
            time.sleep(_DRAIN_POLL_S)
        finished = not self._is_busy()
        for connection in self._all():
            connection.close()
        self._poller.stop()
        for connection in self._all():  # whose end the poller did not get to see
            connection.socket.close()
        return finished

    def _is_busy(self) -> bool:
        """Whether a call is under way, or an answer that its client's socket does not take yet."""
        return any(connection.streams or connection.has_unsent for connection in self._all())

    def _all(self) -> list[Connection]:
        with self._lock:
            return list(self._connections.values())

    def _accept(self, events: int) -> None:
        assert self._listener is not None
        while True:
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                if self._listener.fileno() < 0:
                    return  # the server is stopping
                _log.exception("accepting a connection failed")
                time.sleep(_DRAIN_POLL_S)  # mostly because there are too many
                return
            self._open(accepted)

    def _take(self, channel: socket.socket) -> None:
        try:
            handed, descriptors, _, _ = socket.recv_fds(channel, 1 << 10, 64)
        except BlockingIOError:
            return
        except OSError:
            handed, descriptors = b"", []
        if not handed:
            self._poller.remove(channel.fileno())  # the other process is gone
            return
        for _ in range(len(handed) - len(descriptors)):
            _log.error("a connection was lost on its way here; too many are open")
            self._on_closed()
        for descriptor in descriptors:
            self._open(socket.socket(fileno=descriptor))

    def _open(self, accepted: socket.socket) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _KEEPALIVE_S)
        except OSError:  # it was closed while it waited
            accepted.close()
            self._on_closed()
            return
        connection = Connection(accepted, self._limits, self._wants_writing, self._too_large, self._streaming)
        with self._lock:
            self._connections[connection.fd] = connection
        self._poller.add(connection.fd, lambda events: self._ready(connection, events))

    def _wants_writing(self, connection: Connection) -> None:
        reads = 0 if connection.is_choked else EPOLLIN
        self._poller.change(connection.fd, reads | (EPOLLOUT if connection.has_unsent else 0))

    def _ready(self, connection: Connection, events: int) -> None:
        if events & EPOLLOUT:
            connection.flush()
        if events & ~EPOLLOUT:
            opened = self._receive(connection)
            if opened:
                # What is refused at once goes out together.
                with connection.corked():
                    for stream in opened:
                        self._dispatch(stream)
        if connection.lost:
            self._close(connection)

    def _receive(self, connection: Connection) -> list[Stream]:
        try:
            return connection.receive(self._buffer)
        except Exception:
            # Some of what came was not looked at; its calls must not wait for ever.
            _log.exception("reading from %s failed", connection.peer)
            connection.close()
            return []

    def _close(self, connection: Connection) -> None:
        connection.close()
        self._poller.remove(connection.fd)
        with self._lock:
            self._connections.pop(connection.fd, None)
        connection.socket.close()
        connection.let_go()
        self._on_closed()

    def _dispatch(self, stream: Stream) -> None:
        if stream.ended:  # a client may reset what it has just opened
            return
        path = stream.head.path
        hot = self._hot.get(path)
        if hot is None:
            cold = self._cold.get(path)
            if cold is None:
                end_call(stream, grpc.StatusCode.UNIMPLEMENTED, f"no method {path}")
            else:
                self._begin(cold, stream)
            return
        name, handler = hot
        call = self._call(stream, name)
        overload = self._engine.overload()
        if overload is not None:
            call.fail(overload)
            return
        try:
            if stream.head.encoding not in ENCODINGS:
                raise InvalidRequestError(f"messages compressed with {stream.head.encoding!r} are not understood")
            message = stream.only_message(self._limits.max_message_bytes)
            handler(message, call)
        except MessageTooLargeError as large:
            call.refuse(str(large))
        except MessageError as wrong:
            call.fail(InvalidRequestError(f"{path} {wrong}"))
        except RequestError as error:
            call.fail(error)
        except Exception:
            _log.exception("%s failed", path)
            call.fail(EngineError("the request could not be handled; the server's log says why"))

    def _begin(self, cold: ColdHandler, stream: Stream) -> None:
        try:
            cold(stream)
        except Exception:
            _log.exception("%s failed", stream.head.path)
            end_call(stream, grpc.StatusCode.INTERNAL, "the server's log says why")

    def _call(self, stream: Stream, name: str) -> Call:
        recorder = self._recorder
        call = Call(stream, recorder)
        if recorder is not None:
            call.record = CallRecord(name, time.monotonic())
            if recorder.needs_metadata:
                call.record.metadata = call.metadata
        return call

    def _too_large(self, stream: Stream, why: MessageTooLargeError) -> None:
        """Before all of it has come."""
        hot = self._hot.get(stream.head.path)
        if hot is not None:
            self._call(stream, hot[0]).refuse(str(why))
        else:  # not counted: what clients make up must not become labels of metrics
            end_call(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, str(why))


def _tell(channel: socket.socket) -> None:
    with suppress(OSError):  # nobody counts any more
        channel.send(b"-")
