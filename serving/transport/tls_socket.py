"""A client's socket with TLS, with the part of the socket.socket interface that a connection uses."""

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from serving.security.peer_certificate import PeerCertificate
from serving.security.tls_session import RECORD_BYTES, TlsSession
from serving.transport.tls import TransportTls

# Bytes encrypted at a time. Bytes that the kernel does not accept are kept twice, as plaintext and as ciphertext.
_SEAL_BYTES = 1 << 18
# Bytes that a handshake reads at a time.
_FLIGHT_BYTES = 1 << 14
_NOTHING = memoryview(b"")


class TlsSocket:
    """A non-blocking socket. Call `shake_hands` until it returns True, then use it like a socket; `peer_certificate` is
    then set."""

    def __init__(self, sock: socket.socket, tls: TransportTls) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._tls = tls
        self._session = TlsSession(tls.context())
        # Handlers answer on other threads while the polling thread reads.
        self._lock = threading.Lock()
        # Ciphertext that the kernel has not accepted, and the number of plaintext bytes that it represents.
        self._unsent = _NOTHING
        self._sealed_bytes = 0
        self.peer_certificate: PeerCertificate | None = None

    @property
    def family(self) -> int:
        return self._socket.family

    @property
    def protocol(self) -> str | None:
        """The protocol that ALPN selected, after the handshake."""
        return self._session.protocol

    @property
    def has_unread(self) -> bool:
        """Whether `recv_into` has more to return, even without more data: call it again, after other sockets."""
        return self._session.has_unread

    @property
    def is_flooded(self) -> bool:
        """Whether the client sent too many records without data."""
        return self._session.is_flooded

    def fileno(self) -> int:
        return self._socket.fileno()

    def getpeername(self) -> tuple[str, int]:
        address: tuple[str, int] = self._socket.getpeername()
        return address

    def setblocking(self, flag: bool) -> None:
        """Ignored: the socket never blocks."""

    def setsockopt(self, level: int, name: int, value: int | bytes) -> None:
        self._socket.setsockopt(level, name, value)

    def shake_hands(self) -> bool:
        """Continue the handshake; returns whether it is complete. Raises OSError (including ssl.SSLError) if it
        failed."""
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
                self._push()  # the reply, or the alert with the error
            if is_complete:
                certificate = self._session.peer_certificate
                self.peer_certificate = self._tls.read_certificate(certificate) if certificate else None
        return is_complete

    def recv_into(self, buffer: memoryview) -> int:
        """Like socket.recv_into: plaintext, 0 at the end, BlockingIOError if there is none yet."""
        # Together with the rest of a record from an earlier read, the plaintext must fit into the buffer.
        room = buffer[:-RECORD_BYTES]
        try:
            size = self._socket.recv_into(room) if not self._session.has_unread else -1
        except (BlockingIOError, InterruptedError):
            size = -1  # data may have arrived with the handshake
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
        """Like socket.sendmsg, with one condition: if it accepted nothing, the next call must begin with the same
        bytes, because they are already encrypted. So it may also accept more than the `parts` of that call."""
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
        """Send the pending ciphertext; returns whether the kernel accepted all of it."""
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
