"""TLS handshakes of connections that have just been accepted, on the threads that poll, each with a deadline."""

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from serving.security.rare_log import RareLog
from serving.transport.poller import Poller
from serving.transport.tls import HTTP2, TransportTls
from serving.transport.tls_socket import TlsSocket

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 10.0


class Handshakes:
    """`on_secured` gets each socket whose handshake is complete, `on_failed` is called for each whose is not."""

    def __init__(
        self,
        poller: Poller,
        tls: TransportTls,
        on_secured: Callable[[TlsSocket], None],
        on_failed: Callable[[], None],
    ) -> None:
        self._poller = poller
        self._tls = tls
        self._on_secured = on_secured
        self._on_failed = on_failed
        # By descriptor, in the order they began: the socket and when it must be done.
        self._pending: dict[int, tuple[TlsSocket, float]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._failures = RareLog(_log, _LOG_EVERY_S)
        self._thread = threading.Thread(target=self._watch, name="handshakes", daemon=True)
        self._thread.start()

    def begin(self, accepted: socket.socket) -> None:
        pending = TlsSocket(accepted, self._tls)
        fd = pending.fileno()
        with self._lock:
            self._pending[fd] = (pending, time.monotonic() + self._tls.handshake_s)
        self._poller.add(fd, lambda events: self._step(fd))

    def stop(self) -> None:
        """Those that are not complete are given up."""
        self._stopped.set()
        self._thread.join()
        self._abort(list(self._pending.values()))

    def _step(self, fd: int) -> None:
        pending, until = self._pending[fd]
        try:
            if not pending.shake_hands():
                return
        except (OSError, ValueError) as error:
            overdue = time.monotonic() >= until
            self._failures.warning("TLS handshake with %s failed: %s", _peer(pending), "timeout" if overdue else error)
            self._drop(fd, pending, "timeout" if overdue else "failed")
            return
        if pending.protocol != HTTP2:
            self._failures.warning("TLS handshake with %s failed: it did not offer h2 by ALPN", _peer(pending))
            self._drop(fd, pending, "no_alpn")
            return
        self._forget(fd)
        self._tls.on_handshake("ok")
        self._on_secured(pending)

    def _drop(self, fd: int, pending: TlsSocket, result: str) -> None:
        self._forget(fd)
        pending.close()
        self._tls.on_handshake(result)
        self._on_failed()

    def _forget(self, fd: int) -> None:
        self._poller.remove(fd)
        with self._lock:
            del self._pending[fd]

    def _watch(self) -> None:
        while not self._stopped.wait(self._tls.handshake_s / 4):
            now = time.monotonic()
            with self._lock:
                overdue = [each for each in self._pending.values() if each[1] <= now]
            self._abort(overdue)

    def _abort(self, pending: list[tuple[TlsSocket, float]]) -> None:
        """The polling thread sees its end and drops it."""
        for sock, _ in pending:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _peer(sock: TlsSocket) -> str:
    try:
        return sock.getpeername()[0]
    except OSError:
        return "a client"
