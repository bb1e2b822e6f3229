"""All connections of one process: accepted here or handed over by another, polled, drained, closed."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from select import EPOLLIN, EPOLLOUT

from ghostless.contract import http2_frames as frames
from serving.http2.errors import Closing
from serving.http2.limits import Limits
from serving.http2.memory import ClientMemory
from serving.http2.stream import MessageTooLargeError
from serving.security.peer_certificate import PeerCertificate
from serving.transport.admission import Admission
from serving.transport.client_address import peer_of
from serving.transport.closings import Closings
from serving.transport.connection import Connection, ServedStream
from serving.transport.connection_handlers import ConnectionHandlers
from serving.transport.handed_connections import HandedConnections, OnClosed
from serving.transport.handshakes import Handshakes
from serving.transport.listening import allow_open_files, is_from, stop_listening
from serving.transport.poller import Poller
from serving.transport.tls import TransportTls
from serving.transport.tls_socket import TlsSocket

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
# Connections that are accepted before existing ones get their turn.
_ACCEPT_AT_ONCE = 64
# Interval at which deadlines are checked, and the number of connections per check: 2 us each.
_CHECK_S = 0.1
_CHECKED_AT_ONCE = 512
_DRAIN_POLL_S = 0.01
# Time for clients without calls in progress to react to GOAWAY.
_GOAWAY_GRACE_S = 0.5
# A client that disappeared is detected after about this long.
_KEEPALIVE_S = 60


@dataclass(frozen=True)
class CallHandlers:
    """`on_call` and `on_too_large` as in ConnectionHandlers. `unary` are the methods whose request is one message.
    Without `tls`, connections are plain text."""

    on_call: Callable[[ServedStream], None]
    on_too_large: Callable[[ServedStream, MessageTooLargeError], None]
    unary: Collection[str]


class Connections:
    def __init__(
        self,
        poller: Poller,
        limits: Limits,
        calls: CallHandlers,
        admission: Admission,
        closings: Closings,
        tls: TransportTls | None = None,
        internal: str = "",
    ) -> None:
        """`internal`: path of the Unix socket whose connections are plain text even with `tls`."""
        self._internal = internal
        self._poller = poller
        self._limits = limits
        self._handlers = ConnectionHandlers(
            calls.on_call, calls.on_too_large, self._update_write_interest, self._give_turn, self._close
        )
        self._unary = calls.unary
        self._admission = admission
        self._closings = closings
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._memory = ClientMemory(limits)
        self._connections: dict[int, Connection] = {}
        self._lock = threading.Lock()
        self._listeners: list[socket.socket] = []
        self._handed: HandedConnections | None = None
        self._handshakes = Handshakes(poller, tls, self._serve, closings) if tls is not None else None
        # Callbacks for closed connections, by connection.
        self._on_closed: dict[int, OnClosed] = {}
        # Connections still to be checked in this pass, and the time of the next check.
        self._unchecked: list[Connection] = []
        self._next_check = 0.0
        self._is_stopping = False
        poller.on_polled = self._check

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from a listening socket."""
        allow_open_files(self._admission.limits.in_all)
        listener.setblocking(False)
        self._listeners.append(listener)
        self._poller.add(listener.fileno(), lambda events: self._accept(listener))

    def take_from(self, channel: socket.socket) -> None:
        """Receive connections that another process accepted, and report to it each that closed."""
        self._handed = HandedConnections(channel, self._open, self._closings)
        self._poller.add(channel.fileno(), self._take)

    def stop(self, grace_s: float) -> bool:
        """Reject new calls and give those in progress `grace_s` to finish; returns whether all did."""
        for listener in self._listeners:
            self._poller.remove(listener.fileno())
            stop_listening(listener)
            self._admission.close()
        self._is_stopping = True
        if self._handed is not None:
            self._poller.remove(self._handed.fileno())
            self._handed.close()
        if self._handshakes is not None:
            self._handshakes.abort()
        for connection in self._all():
            connection.drain()
        until = time.monotonic() + grace_s
        while self._all() and time.monotonic() < until:
            if not self._is_busy() and time.monotonic() > until - grace_s + _GOAWAY_GRACE_S:
                break
            time.sleep(_DRAIN_POLL_S)
        finished = not self._is_busy()
        for connection in self._all():
            connection.close(Closing.SHUTDOWN)
        self._poller.stop()
        for connection in self._all():  # the poller may not have noticed their end
            connection.socket.close()
        if self._handshakes is not None:
            self._handshakes.close()
        return finished

    def close_distrusted(self, is_trusted: Callable[[PeerCertificate], bool]) -> int:
        """Close the connections whose client's certificate is no longer trusted; returns their number."""
        distrusted = [each for each in self._all() if each.certificate and not is_trusted(each.certificate)]
        for connection in distrusted:
            connection.close(Closing.DISTRUSTED)
        return len(distrusted)

    def _is_busy(self) -> bool:
        """Whether a call is in progress, or a response waits for its client's socket."""
        return any(connection.is_busy for connection in self._all())

    def _all(self) -> list[Connection]:
        with self._lock:
            return list(self._connections.values())

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                if listener.fileno() < 0:
                    return  # the server is stopping
                _log.exception("accepting a connection failed")
                time.sleep(_DRAIN_POLL_S)  # usually there are too many open files
                return
            peer = peer_of(address)
            refused = self._admission.admit(peer)
            if refused is None:
                self._open(accepted, partial(self._admission.release, peer))
            else:
                self._admission.refuse(accepted, refused)
                self._closings.add(refused, peer)

    def _take(self, events: int) -> None:
        assert self._handed is not None
        if not self._handed.take():
            self._poller.remove(self._handed.fileno())  # the other process is gone

    def _open(self, accepted: socket.socket, on_closed: OnClosed) -> None:
        try:
            _set_options(accepted)
        except OSError:  # it was closed while it waited
            accepted.close()
            on_closed(Closing.CLIENT)
            return
        if self._handshakes is None or is_from(accepted, self._internal):
            self._serve(accepted, on_closed)
        else:
            self._handshakes.begin(accepted, on_closed)

    def _serve(self, sock: socket.socket | TlsSocket, on_closed: OnClosed) -> None:
        connection = Connection(sock, self._limits, self._unary, self._buffer, self._handlers, self._memory)
        with self._lock:
            self._connections[connection.fd] = connection
        self._on_closed[connection.fd] = on_closed
        if isinstance(sock, TlsSocket):
            on_ready = partial(self._on_secured_ready, connection, sock)
            self._poller.add(connection.fd, on_ready)
            # Data that arrived with the end of the handshake is no longer in the socket.
            on_ready(EPOLLIN)
        else:
            self._poller.add(connection.fd, connection.on_ready)

    def _on_secured_ready(self, connection: Connection, sock: TlsSocket, events: int) -> None:
        """Like Connection.on_ready, for data that may already have left the kernel's socket."""
        connection.on_ready(events | EPOLLIN if sock.has_unread else events)
        if sock.is_flooded:
            connection.fail("too many TLS records without data", frames.ENHANCE_YOUR_CALM, Closing.FLOOD)
            self._close(connection)
        elif sock.has_unread and not connection.is_choked and connection.fd in self._connections:
            self._poller.give_turn(connection.fd)

    def _check(self, now: float) -> None:
        """Called after each poll: checks memory every time, and deadlines a few times a second for some connections at
        a time."""
        if self._memory.held_bytes > self._memory.limit:
            self._free_memory()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_S
        if self._handshakes is not None:
            self._handshakes.check_time(now)
        if not self._unchecked:
            self._unchecked = self._all()
            self._memory.held_bytes = sum(connection.held_bytes for connection in self._unchecked)
            self._closings.observer.on_state(len(self._unchecked), self._memory.held_bytes)
        for connection in self._unchecked[:_CHECKED_AT_ONCE]:
            if connection.fd in self._connections:
                connection.check_time(now)
        del self._unchecked[:_CHECKED_AT_ONCE]
        self._admission.let_go()
        if self._handed is not None:
            self._handed.report()

    def _free_memory(self) -> None:
        """Close the connections that use the most memory, until there is room."""
        by_size = sorted((connection.held_bytes, connection.fd) for connection in self._all())
        self._memory.held_bytes = sum(size for size, _ in by_size)
        while self._memory.is_full and by_size:
            connection = self._connections[by_size.pop()[1]]
            connection.fail("the memory for clients is full", frames.ENHANCE_YOUR_CALM, Closing.MEMORY)
            connection.close()
            self._close(connection)
            self._memory.held_bytes = sum(size for size, _ in by_size)

    def _give_turn(self, connection: Connection) -> None:
        self._poller.give_turn(connection.fd)

    def _update_write_interest(self, connection: Connection) -> None:
        reads = 0 if connection.is_choked else EPOLLIN
        self._poller.change(connection.fd, reads | (EPOLLOUT if connection.has_unsent else 0))

    def _close(self, connection: Connection) -> None:
        if connection.fd not in self._connections:
            return
        connection.close()
        self._poller.remove(connection.fd)
        connection.socket.close()
        connection.release()
        with self._lock:
            del self._connections[connection.fd]
        reason, why = connection.closing
        if reason is Closing.CLIENT and self._is_stopping:
            reason = Closing.SHUTDOWN
        self._closings.add(reason, connection.peer, why)
        self._on_closed.pop(connection.fd)(reason)


def _set_options(accepted: socket.socket) -> None:
    if accepted.family == socket.AF_UNIX:
        return  # a Unix socket: its peer can't disappear unnoticed, and nothing is delayed
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _KEEPALIVE_S)
