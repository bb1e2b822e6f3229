"""One client's connection: its socket, its protocol, its streams, and the lock between the threads that answer them.

The polling thread calls `on_ready`, one thread at a time. Responses may come from any thread. Nothing blocks: bytes
that the socket or the client's windows don't accept yet are stored and sent later.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from select import EPOLLOUT
from typing import TYPE_CHECKING

from ghostless.contract import http2_frames as frames
from serving.http2.errors import Closing
from serving.http2.events import CallCancelled, Event, RequestContinued, RequestReceived, RequestTooLarge
from serving.http2.headers import RequestHead
from serving.http2.limits import Limits
from serving.http2.memory import ClientMemory
from serving.http2.protocol import ServerProtocol
from serving.http2.states import ConnectionState
from serving.http2.stream import Stream
from serving.security.peer_certificate import PeerCertificate
from serving.transport.client_address import peer_in_grpc_notation
from serving.transport.connection_handlers import ConnectionHandlers, notify_cancelled
from serving.transport.outgoing import Outgoing
from serving.transport.tls_socket import TlsSocket

if TYPE_CHECKING:
    from serving.security.credentials import Credentials
    from serving.security.gate import Caller

_log = logging.getLogger(__name__)

_READY = ConnectionState.OPEN


class ServedStream(Stream):
    """A stream with its connection and the callbacks for its events."""

    __slots__ = ("caller", "connection", "on_cancelled", "on_data")

    connection: "Connection"

    def __init__(self, number: int, head: RequestHead, is_streaming: bool, window: int) -> None:
        super().__init__(number, head, is_streaming, window)
        # None if there is no access control.
        self.caller: Caller | None = None
        # Called if the client cancels, or its connection is lost.
        self.on_cancelled: Callable[[], None] | None = None
        # For a streaming request: called when more data, or the end, has arrived.
        self.on_data: Callable[[], None] | None = None

    def forget_handler(self) -> None:
        """Drop the callbacks: they refer to the stream, and the cycle would have to wait for the garbage collector."""
        self.on_cancelled = self.on_data = None


class Connection:
    """All connections of a process share `buffer`, for reading, and `memory`, which counts their memory.

    Only these members of `sock` are used: setblocking, fileno, family, getpeername, recv_into, sendmsg, setsockopt,
    shutdown and close."""

    def __init__(
        self,
        sock: socket.socket | TlsSocket,
        limits: Limits,
        unary: Collection[str],
        buffer: memoryview,
        handlers: ConnectionHandlers,
        memory: ClientMemory | None = None,
    ) -> None:
        sock.setblocking(False)
        memory = memory or ClientMemory(limits)
        self._limits = limits
        self._buffer = buffer
        self._handlers = handlers
        self.socket = sock
        self.fd = sock.fileno()
        self.peer = peer_in_grpc_notation(sock)
        self.protocol = ServerProtocol(limits, unary, ServedStream, memory, time.monotonic)
        self._reader = self.protocol.reader
        self._outgoing = Outgoing(sock, limits, memory, lambda: handlers.on_write_interest(self))
        self._lock = threading.RLock()
        self._is_corked = False
        # The credentials that the gate found in the last call's headers.
        self.credentials: Credentials | None = None
        # Until when, and how many more bytes, it is read from after its end.
        self._lingers_until: float | None = None
        self._linger_bytes = limits.linger_bytes
        self._closing: Closing | None = None

    @property
    def certificate(self) -> PeerCertificate | None:
        """The client's certificate, if TLS requested one and the client sent one."""
        return self.socket.peer_certificate if isinstance(self.socket, TlsSocket) else None

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress, or a response waits for the client's socket."""
        return bool(self.protocol.streams) or self.has_unsent

    @property
    def has_unsent(self) -> bool:
        return not self._outgoing.is_empty

    @property
    def is_choked(self) -> bool:
        """Whether so much is unsent that nothing more should be read."""
        return self._outgoing.is_choked

    @property
    def held_bytes(self) -> int:
        """Approximate memory that it uses."""
        return self.protocol.held_bytes + self._outgoing.unsent_bytes

    @property
    def closing(self) -> tuple[Closing, str]:
        """Why it ended: the reason, and a message of the server."""
        fault = self.protocol.fault
        if fault is not None:
            return fault.reason, str(fault)
        return self.protocol.leaves_because or self._closing or Closing.CLIENT, ""

    def on_ready(self, events: int) -> None:
        """The socket is readable or writable; `events` as in epoll. Does one turn of work; the rest is done after the
        other connections had their turns."""
        if events & EPOLLOUT:
            self.flush()
        has_more = self._reader.has_more
        if (has_more and not self.is_choked) or (not has_more and events & ~EPOLLOUT):
            try:
                received = self._receive(has_more)
                if received:
                    self._handle(received)
            except Exception:
                # Some of the received bytes were not processed; their calls must not wait forever.
                _log.exception("reading from %s failed", self.peer)
                self.close(Closing.SERVER_ERROR)
            if self._reader.has_more:
                self._handlers.on_more(self)
        if self._outgoing.lost:
            self._handlers.on_lost(self)

    def _receive(self, has_more: bool) -> list[Event[ServedStream]]:
        """Read from the socket, or continue with what was read; returns the events. New streams have no connection
        yet."""
        size = 0
        if not has_more:
            try:
                size = self.socket.recv_into(self._buffer)
            except (BlockingIOError, InterruptedError):
                return []
            except OSError:
                size = 0
            if self._lingers_until is not None:
                self._linger_bytes -= size
                if size and self._linger_bytes > 0:
                    return []
                size = 0
            if not size:
                self.close()
                return []
        with self._lock:
            events = self.protocol.receive(self._buffer[:size])
            self._transmit()
        return events

    def check_time(self, now: float) -> None:
        """Call this a few times a second on the polling thread: ends what takes too long."""
        with self._lock:
            if self._lingers_until is None and self._outgoing.finished:
                self._lingers_until = now + (self._limits.linger_s if self.protocol.fault else self._limits.leave_s)
            events = self.protocol.check_time(now)
            self._transmit()
            if self._outgoing.is_overdue(now):
                events += self.protocol.fail("answers were not read", frames.ENHANCE_YOUR_CALM, Closing.UNREAD)
                self._outgoing.lose()
            elif self._lingers_until is not None and now > self._lingers_until:
                # The client had its time, and the kernel might keep a full buffer for long.
                self._outgoing.lose(by_reset=True)
        notify_cancelled(events)
        if self._outgoing.lost:
            self._handlers.on_lost(self)

    def fail(self, why: str, code: int, reason: Closing) -> None:
        """End the connection with a GOAWAY, for a reason other than the received bytes."""
        with self._lock:
            events = self.protocol.fail(why, code, reason)
            self._transmit()
        notify_cancelled(events)

    def _handle(self, events: Sequence[Event[ServedStream]]) -> None:
        self._cork()  # immediate rejections are sent together
        try:
            for event in events:
                stream = event.stream
                stream.connection = self
                if type(event) is RequestReceived:
                    self._handlers.on_call(stream)
                elif type(event) is CallCancelled:
                    notify_cancelled((event,))
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
        """Send the only message of a successful call; does nothing if the call has ended."""
        with self._lock:
            self.protocol.answer(stream, message)
            self._transmit()
        stream.on_cancelled = None

    def send(self, stream: ServedStream, message: bytes) -> bool:
        """Send one message of a response; returns False if the call has ended."""
        with self._lock:
            taken = self.protocol.send(stream, message)
            self._transmit()
        return taken

    def end(self, stream: ServedStream, trailers: bytes) -> None:
        """End the response with these trailers, after the messages already sent; does nothing if the call has ended."""
        with self._lock:
            self.protocol.end(stream, trailers)
            self._transmit()
        stream.forget_handler()

    def reset(self, stream: ServedStream, code: int) -> None:
        """Abort the call. The handler is notified by the polling thread, because it may be the caller."""
        with self._lock:
            self.protocol.reset(stream, code)
            self._transmit()

    def drain(self) -> None:
        """Ask the client to open no more calls; close when those in progress have ended."""
        with self._lock:
            self.protocol.drain()
            self._transmit()

    def _cork(self) -> None:
        """Hold back writes until `_uncork`, so that they are sent together."""
        with self._lock:
            self._is_corked = True

    def _uncork(self) -> None:
        with self._lock:
            self._is_corked = False
            self._transmit()

    def _notify_aborted(self) -> None:
        """Notify the handlers of calls that were aborted since the last read."""
        with self._lock:
            events = self.protocol.take_events()
        notify_cancelled(events)

    def flush(self) -> None:
        """The socket is writable again."""
        with self._lock:
            self._outgoing.flush()
            self._finish_if_ended()

    def close(self, reason: Closing = Closing.CLIENT) -> None:
        """Close immediately; calls in progress are notified that their client is gone."""
        with self._lock:
            self._closing = self._closing or reason
            self._outgoing.lose()
            events = self.protocol.lose()
        notify_cancelled(events)

    def release(self) -> None:
        """Drop callbacks that refer to it, once nothing polls it, so that no reference cycle is left."""
        with self._lock:
            self._outgoing.on_change = _nothing

    def _transmit(self) -> None:
        if not self._is_corked and self.protocol.outgoing:
            self._outgoing.write(self.protocol.take_outgoing())
        if self.protocol.state is not _READY:
            self._finish_if_ended()

    def _finish_if_ended(self) -> None:
        """Once everything is sent, discard what the client still sends until it closes its side, or time is up."""
        ended = self.protocol.fault is not None
        if ended and self._lingers_until is None:
            self._lingers_until = time.monotonic() + self._limits.linger_s
        if (ended or self.protocol.is_drained) and not self.protocol.outgoing and self._outgoing.is_empty:
            self._outgoing.finish()


def _nothing() -> None:
    pass
