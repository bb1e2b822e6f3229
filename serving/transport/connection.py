"""One client's connection: its socket, what comes from it, and the lock between the threads that answer its calls.

`on_ready` is called by the thread that polls, one thread at a time. Answers may come from any thread. Nothing here
waits: what the socket or the client's windows don't take now is stored, and goes out when they do.
"""

import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from select import EPOLLOUT
from typing import TYPE_CHECKING

from serving.http2.events import CallCancelled, Event, RequestContinued, RequestReceived, RequestTooLarge
from serving.http2.headers import RequestHead
from serving.http2.limits import Limits
from serving.http2.protocol import ServerProtocol
from serving.http2.states import ConnectionState
from serving.http2.stream import MessageTooLargeError, Stream
from serving.security.peer_certificate import PeerCertificate
from serving.transport.outgoing import Outgoing
from serving.transport.tls_socket import TlsSocket

if TYPE_CHECKING:
    from serving.security.credentials import Credentials
    from serving.security.gate import Caller

_log = logging.getLogger(__name__)

_DRAINING = ConnectionState.DRAINING


class ServedStream(Stream):
    """A stream with its connection and the callbacks for its events."""

    __slots__ = ("caller", "connection", "on_cancelled", "on_data")

    connection: "Connection"

    def __init__(self, number: int, head: RequestHead, is_streaming: bool) -> None:
        super().__init__(number, head, is_streaming)
        # None where everybody may call.
        self.caller: Caller | None = None
        # The client left, or its connection was lost.
        self.on_cancelled: Callable[[], None] | None = None
        # Of a streaming one: more has come, or the end.
        self.on_data: Callable[[], None] | None = None


@dataclass(frozen=True)
class ConnectionHandlers:
    """`on_call` gets each stream whose request is whole, or is a stream of messages that begins; `on_too_large` those
    whose request will not be taken. `on_write_interest`: a socket's buffer is full, or no longer. `on_lost`: the
    connection is of no use any more."""

    on_call: Callable[[ServedStream], None]
    on_too_large: Callable[[ServedStream, MessageTooLargeError], None]
    on_write_interest: Callable[["Connection"], None]
    on_lost: Callable[["Connection"], None]


class Connection:
    """`buffer` is what is read through; a polling thread's connections share it."""

    def __init__(
        self,
        sock: socket.socket | TlsSocket,
        limits: Limits,
        unary: Collection[str],
        buffer: memoryview,
        handlers: ConnectionHandlers,
    ) -> None:
        sock.setblocking(False)
        self._buffer = buffer
        self._handlers = handlers
        self.socket = sock
        self.fd = sock.fileno()
        self.peer = _peer(sock)
        self.protocol = ServerProtocol(limits, unary, ServedStream)
        self._outgoing = Outgoing(sock, limits, lambda: handlers.on_write_interest(self))
        self._lock = threading.RLock()
        self._is_corked = False
        # What the gate found of the last call's head.
        self.credentials: Credentials | None = None
        with self._lock:
            self._transmit()

    @property
    def certificate(self) -> PeerCertificate | None:
        """The client's, where TLS asked for one and it had one."""
        return self.socket.peer_certificate if isinstance(self.socket, TlsSocket) else None

    @property
    def is_busy(self) -> bool:
        """A call is under way, or an answer that the client's socket does not take yet."""
        return bool(self.protocol.streams) or self.has_unsent

    @property
    def has_unsent(self) -> bool:
        return not self._outgoing.is_empty

    @property
    def is_choked(self) -> bool:
        """So much is unsent that nothing more should be read."""
        return self._outgoing.is_choked

    def on_ready(self, events: int) -> None:
        """The socket can be read from, or written to; `events` as epoll has them."""
        if events & EPOLLOUT:
            self.flush()
        if events & ~EPOLLOUT:
            try:
                received = self._receive()
                if received:
                    self._handle(received)
            except Exception:
                # Some of what came was not looked at; its calls must not wait for ever.
                _log.exception("reading from %s failed", self.peer)
                self.close()
        if self._outgoing.lost:
            self._handlers.on_lost(self)

    def _receive(self) -> list[Event[ServedStream]]:
        """Read what there is; what it brought. Streams don't know their connection yet."""
        try:
            size = self.socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            size = 0
        if not size:
            self.close()
            return []
        with self._lock:
            events = self.protocol.receive(self._buffer[:size])
            self._transmit()
            if self.protocol.fault is not None:
                self._outgoing.lose()
        return events

    def _handle(self, events: Sequence[Event[ServedStream]]) -> None:
        self._cork()  # what is refused at once goes out together
        try:
            for event in events:
                stream = event.stream
                stream.connection = self
                if type(event) is RequestReceived:
                    self._handlers.on_call(stream)
                elif type(event) is CallCancelled:
                    _notify_cancelled((event,))
                elif type(event) is RequestContinued:
                    if stream.on_data is not None:
                        stream.on_data()
                elif type(event) is RequestTooLarge:
                    self._handlers.on_too_large(stream, event.error)
        finally:
            self._uncork()
        if self.protocol.has_events:
            self._notify_aborted()

    def answer(self, stream: ServedStream, message: bytes) -> None:
        """The one message of a call that succeeded; nothing if nobody waits for it."""
        with self._lock:
            self.protocol.answer(stream, message)
            self._transmit()
        stream.on_cancelled = None

    def send(self, stream: ServedStream, message: bytes) -> bool:
        """One message of an answer; False if nobody waits for it."""
        with self._lock:
            taken = self.protocol.send(stream, message)
            self._transmit()
        return taken

    def end(self, stream: ServedStream, trailers: bytes) -> None:
        """With this block, after the messages that were sent; nothing if the call has ended."""
        with self._lock:
            self.protocol.end(stream, trailers)
            self._transmit()
        _forget_handler(stream)

    def reset(self, stream: ServedStream, code: int) -> None:
        """Abort the call. The handler is notified by the polling thread, because it may be the caller."""
        with self._lock:
            self.protocol.reset(stream, code)
            self._transmit()

    def drain(self) -> None:
        """Tell the client to open no more calls here; close when those under way have ended."""
        with self._lock:
            self.protocol.drain()
            self._transmit()

    def _cork(self) -> None:
        """Hold back what is written until `_uncork`, so that it goes out together."""
        with self._lock:
            self._is_corked = True

    def _uncork(self) -> None:
        with self._lock:
            self._is_corked = False
            self._transmit()

    def _notify_aborted(self) -> None:
        """Tell the handlers of calls that were aborted since the last read."""
        with self._lock:
            events = self.protocol.take_events()
        _notify_cancelled(events)

    def flush(self) -> None:
        """The socket takes more again."""
        with self._lock:
            self._outgoing.flush()
            self._finish_if_drained()

    def close(self) -> None:
        """At once; calls under way are notified that their client is gone."""
        with self._lock:
            self._outgoing.lose()
            events = self.protocol.lose()
        _notify_cancelled(events)

    def release(self) -> None:
        """Once nothing polls it. What it calls back refers to it, and with all that it has read it would wait for the
        garbage collector."""
        with self._lock:
            self._outgoing.on_change = _nothing

    def _transmit(self) -> None:
        if not self._is_corked and self.protocol.outgoing:
            self._outgoing.write(self.protocol.take_outgoing())
        if self.protocol.state is _DRAINING:
            self._finish_if_drained()

    def _finish_if_drained(self) -> None:
        if self.protocol.is_drained and not self.protocol.outgoing and self._outgoing.is_empty:
            self._outgoing.finish()


def _notify_cancelled(events: Iterable[Event[ServedStream]]) -> None:
    """Without a connection's lock: a handler may take locks of its own."""
    for event in events:
        if type(event) is CallCancelled:
            on_cancelled = event.stream.on_cancelled
            _forget_handler(event.stream)
            if on_cancelled is not None:
                on_cancelled()


def _forget_handler(stream: ServedStream) -> None:
    """It needs to hear no more. It refers to the stream, and both would wait for the garbage collector."""
    stream.on_cancelled = stream.on_data = None


def _nothing() -> None:
    pass


def _peer(sock: socket.socket | TlsSocket) -> str:
    """As gRPC writes addresses."""
    try:
        address = sock.getpeername()
    except OSError:
        return "unknown"
    if sock.family == socket.AF_UNIX:
        return f"unix:{address}"
    return f"ipv{6 if sock.family == socket.AF_INET6 else 4}:{address[0]}:{address[1]}"
