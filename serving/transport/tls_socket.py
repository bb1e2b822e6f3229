"""A client's socket with TLS in between: as much of socket.socket as a connection uses."""

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from serving.security.peer_certificate import PeerCertificate
from serving.security.tls_session import RECORD_BYTES, TlsSession
from serving.transport.tls import TransportTls

# Encrypted at a time. What the kernel does not take is held twice until it does, as plaintext and as ciphertext.
_SEAL_BYTES = 1 << 18
# What a handshake reads at a time.
_FLIGHT_BYTES = 1 << 14
_NOTHING = memoryview(b"")


class TlsSocket:
    """Non-blocking. `shake_hands` until it returns True, then as a socket; `peer_certificate` is set by then."""

    def __init__(self, sock: socket.socket, tls: TransportTls) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._tls = tls
        self._session = TlsSession(tls.context())
        # Handlers answer on threads of their own while the polling thread reads.
        self._lock = threading.Lock()
        # Ciphertext that the kernel has not taken, and how many bytes of plaintext it stands for.
        self._unsent = _NOTHING
        self._sealed_bytes = 0
        self.peer_certificate: PeerCertificate | None = None

    @property
    def family(self) -> int:
        return self._socket.family

    @property
    def protocol(self) -> str | None:
        """What ALPN agreed on, after the handshake."""
        return self._session.protocol

    def fileno(self) -> int:
        return self._socket.fileno()

    def getpeername(self) -> tuple[str, int]:
        address: tuple[str, int] = self._socket.getpeername()
        return address

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, level: int, name: int, value: int | bytes) -> None:
        self._socket.setsockopt(level, name, value)

    def shake_hands(self) -> bool:
        """Read what there is and answer it; whether the handshake is complete. OSError, of which ssl.SSLError is one,
        if it failed."""
        try:
            flight = self._socket.recv(_FLIGHT_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        if not flight:
            raise ConnectionError("the client left during the TLS handshake")
        with self._lock:
            self._session.feed(flight)
            try:
                is_complete = self._session.handshake()
            finally:
                self._push()  # the answer, or the alert that says what was wrong
            if is_complete:
                certificate = self._session.peer_certificate
                self.peer_certificate = self._tls.read_certificate(certificate) if certificate else None
        return is_complete

    def recv_into(self, buffer: memoryview) -> int:
        """As of a socket: plaintext, 0 at its end, BlockingIOError where there is none yet."""
        # With what an earlier read left of a record it must fit into the buffer when it is decrypted.
        room = buffer[:-RECORD_BYTES]
        try:
            size = self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            size = -1  # something may have come together with the handshake
        with self._lock:
            if size >= 0:
                self._session.feed(room[:size])
            taken = self._session.read_into(buffer)
            if self._session.has_output:
                self._push()  # OpenSSL answers some records itself
        if not taken and size and not self._session.is_closed:
            raise BlockingIOError
        return taken

    def sendmsg(self, parts: Sequence[bytes | memoryview]) -> int:
        """As of a socket, with one condition: after it took nothing, the next call must begin with the same bytes, for
        they are encrypted. So it may also take more than that call's `parts`."""
        with self._lock:
            if not self._sealed_bytes:
                self._sealed_bytes = self._session.seal(parts, _SEAL_BYTES)
            if not self._push():
                return 0
            sent, self._sealed_bytes = self._sealed_bytes, 0
            return sent

    def shutdown(self, how: int) -> None:
        with self._lock, suppress(OSError):
            self._session.close()
            self._push()
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()

    def _push(self) -> bool:
        """Send the ciphertext that there is; whether the kernel took all of it."""
        while self._unsent or self._session.has_output:
            out = self._unsent or self._session.take()
            try:
                sent = self._socket.send(out)
            except (BlockingIOError, InterruptedError):
                sent = 0
            if sent < len(out):
                self._unsent = memoryview(out)[sent:]
                return False
            self._unsent = _NOTHING
        return True
