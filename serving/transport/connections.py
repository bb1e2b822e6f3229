"""All connections of one process: accepted here or handed over by another, polled, drained, closed."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT

from serving.http2.limits import Limits
from serving.http2.stream import MessageTooLargeError
from serving.security.peer_certificate import PeerCertificate
from serving.transport.connection import Connection, ConnectionHandlers, ServedStream
from serving.transport.handshakes import Handshakes
from serving.transport.listening import stop_listening
from serving.transport.poller import Poller
from serving.transport.tls import TransportTls
from serving.transport.tls_socket import TlsSocket

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
_DRAIN_POLL_S = 0.01
# How long clients that have nothing under way are given to answer GOAWAY.
_GOAWAY_GRACE_S = 0.5
# A client that vanished without a word is found out after about this long.
_KEEPALIVE_S = 60


class Connections:
    """`on_call` and `on_too_large`: as ConnectionHandlers has them. `unary` are the methods whose request is one
    message. `tls` None: plain text."""

    def __init__(
        self,
        poller: Poller,
        limits: Limits,
        on_call: Callable[[ServedStream], None],
        on_too_large: Callable[[ServedStream, MessageTooLargeError], None],
        unary: Collection[str],
        tls: TransportTls | None = None,
    ) -> None:
        self._poller = poller
        self._limits = limits
        self._handlers = ConnectionHandlers(on_call, on_too_large, self._update_write_interest, self._close)
        self._unary = unary
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._connections: dict[int, Connection] = {}
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._channel: socket.socket | None = None
        self._on_closed: Callable[[], None] = lambda: None
        self._handshakes: Handshakes | None = None
        if tls is not None:
            self._handshakes = Handshakes(poller, tls, self._serve, lambda: self._on_closed())

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from a listening socket."""
        listener.setblocking(False)
        self._listener = listener
        self._poller.add(listener.fileno(), self._accept)

    def take_from(self, channel: socket.socket) -> None:
        """Take connections that another process accepted, and tell it of each that closed with one byte."""
        channel.setblocking(False)
        self._channel = channel
        self._on_closed = lambda: _report_closed(channel)
        self._poller.add(channel.fileno(), lambda events: self._take(channel))

    def stop(self, grace_s: float) -> bool:
        """No new calls; those under way have `grace_s` to finish. Whether all did."""
        if self._listener is not None:
            self._poller.remove(self._listener.fileno())
            stop_listening(self._listener)
        if self._channel is not None:
            # Its other end learns that no more connections are taken here.
            self._poller.remove(self._channel.fileno())
            self._channel.close()
        if self._handshakes is not None:
            self._handshakes.stop()
        for connection in self._all():
            connection.drain()
        until = time.monotonic() + grace_s
        while self._all() and time.monotonic() < until:
            if not self._is_busy() and time.monotonic() > until - grace_s + _GOAWAY_GRACE_S:
                break
            time.sleep(_DRAIN_POLL_S)
        finished = not self._is_busy()
        for connection in self._all():
            connection.close()
        self._poller.stop()
        for connection in self._all():  # whose end the poller did not get to see
            connection.socket.close()
        return finished

    def close_distrusted(self, is_trusted: Callable[[PeerCertificate], bool]) -> int:
        """Close the connections whose client's certificate is not trusted any more; how many those were."""
        distrusted = [each for each in self._all() if each.certificate and not is_trusted(each.certificate)]
        for connection in distrusted:
            connection.close()
        return len(distrusted)

    def _is_busy(self) -> bool:
        """Whether a call is under way, or an answer that its client's socket does not take yet."""
        return any(connection.is_busy for connection in self._all())

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
            _log.error("a connection was lost between supervisor and worker: too many open files")
            self._on_closed()
        for descriptor in descriptors:
            self._open(socket.socket(fileno=descriptor))

    def _open(self, accepted: socket.socket) -> None:
        try:
            _set_options(accepted)
        except OSError:  # it was closed while it waited
            accepted.close()
            self._on_closed()
            return
        if self._handshakes is None:
            self._serve(accepted)
        else:
            self._handshakes.begin(accepted)

    def _serve(self, sock: socket.socket | TlsSocket) -> None:
        connection = Connection(sock, self._limits, self._unary, self._buffer, self._handlers)
        with self._lock:
            self._connections[connection.fd] = connection
        self._poller.add(connection.fd, connection.on_ready)
        if self._handshakes is not None:
            # What came together with the end of the handshake has left the socket.
            connection.on_ready(EPOLLIN)

    def _update_write_interest(self, connection: Connection) -> None:
        reads = 0 if connection.is_choked else EPOLLIN
        self._poller.change(connection.fd, reads | (EPOLLOUT if connection.has_unsent else 0))

    def _close(self, connection: Connection) -> None:
        connection.close()
        self._poller.remove(connection.fd)
        with self._lock:
            self._connections.pop(connection.fd, None)
        connection.socket.close()
        connection.release()
        self._on_closed()


def _set_options(accepted: socket.socket) -> None:
    if accepted.family == socket.AF_UNIX:
        return  # its other end is on this machine: it can't vanish without a word, and nothing is delayed
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _KEEPALIVE_S)


def _report_closed(channel: socket.socket) -> None:
    with suppress(OSError):  # nobody counts any more
        channel.send(b"-")
