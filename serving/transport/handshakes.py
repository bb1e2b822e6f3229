"""TLS handshakes of new connections, on the polling threads, each with a deadline.

A step of a handshake takes as long as several calls, so handshakes wait for their turn like connections with much to
do: a flood of them delays other clients by one turn at most.
"""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from serving.http2.errors import Closing
from serving.transport.closings import Closings
from serving.transport.handed_connections import OnClosed
from serving.transport.poller import Poller
from serving.transport.tls import HTTP2, TransportTls
from serving.transport.tls_socket import TlsSocket


@dataclass
class _Handshake:
    socket: TlsSocket
    on_closed: OnClosed
    # Deadline of the handshake.
    until: float
    # Whether it waits for its turn.
    is_waiting: bool = False


class Handshakes:
    """`on_secured` gets each socket whose handshake is complete, and a callback for when it is closed."""

    def __init__(
        self,
        poller: Poller,
        tls: TransportTls,
        on_secured: Callable[[TlsSocket, OnClosed], None],
        closings: Closings,
    ) -> None:
        self._poller = poller
        self._tls = tls
        self._on_secured = on_secured
        self._closings = closings
        # By descriptor, in the order in which they began.
        self._pending: dict[int, _Handshake] = {}

    def begin(self, accepted: socket.socket, on_closed: OnClosed) -> None:
        pending = TlsSocket(accepted, self._tls)
        fd = pending.fileno()
        self._pending[fd] = _Handshake(pending, on_closed, time.monotonic() + self._tls.handshake_s)
        self._poller.add(fd, lambda events: self._on_ready(fd))

    def check_time(self, now: float) -> None:
        """Call this a few times a second on the polling thread: ends handshakes that take too long."""
        while self._pending:
            fd, first = next(iter(self._pending.items()))
            if first.until > now:
                return
            self._drop(fd, first, Closing.HANDSHAKE_DEADLINE, "timeout", "")

    def abort(self) -> None:
        """The server is stopping: end all handshakes. The polling thread notices and drops them."""
        for pending in list(self._pending.values()):
            with suppress(OSError):
                pending.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close what the polling thread has not dropped, after it ended."""
        for pending in self._pending.values():
            pending.socket.close()
        self._pending.clear()

    def _on_ready(self, fd: int) -> None:
        pending = self._pending[fd]
        pending.is_waiting = not pending.is_waiting
        if pending.is_waiting:
            self._poller.give_turn(fd)
        else:
            self._step(fd, pending)

    def _step(self, fd: int, pending: _Handshake) -> None:
        try:
            if not pending.socket.shake_hands():
                return
        except (OSError, ValueError) as error:
            self._drop(fd, pending, Closing.HANDSHAKE, "failed", str(error))
            return
        if pending.socket.protocol != HTTP2:
            self._drop(fd, pending, Closing.HANDSHAKE, "no_alpn", "the client did not offer h2 by ALPN")
            return
        self._forget(fd)
        self._tls.on_handshake("ok")
        self._on_secured(pending.socket, pending.on_closed)

    def _drop(self, fd: int, pending: _Handshake, reason: Closing, result: str, why: str) -> None:
        peer = _peer(pending.socket)
        self._forget(fd)
        pending.socket.close()
        self._tls.on_handshake(result)
        self._closings.add(reason, peer, why)
        pending.on_closed(reason)

    def _forget(self, fd: int) -> None:
        self._poller.remove(fd)
        del self._pending[fd]


def _peer(sock: TlsSocket) -> str:
    try:
        return sock.getpeername()[0]
    except OSError:
        return "unknown"
