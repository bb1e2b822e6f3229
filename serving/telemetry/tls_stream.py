"""TLS for the operations port: a stream on a blocking socket, whose waits hold no lock.

The process that serves metrics forks workers. Whatever OpenSSL does here happens under the lock that is held while it
forks, so that no worker inherits a lock of OpenSSL that a thread of its parent held.
"""

import io
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from serving.security.tls_session import RECORD_BYTES, TlsSession

if TYPE_CHECKING:
    from serving.security.tls_files import TlsFiles

_WRITE_BYTES = 1 << 20


class TlsStream(io.RawIOBase):
    """The handshake is part of the first read. One thread may read while another writes."""

    def __init__(self, sock: socket.socket, files: "TlsFiles", lock: threading.Lock) -> None:
        self._socket = sock
        self._lock = lock
        # Held from taking sealed bytes until they are sent, so that a reader and a writer keep their order.
        self._sending = threading.Lock()
        self._is_open = False
        self._plain = memoryview(b"")
        self._buffer = memoryview(bytearray(2 * RECORD_BYTES))
        with lock:
            files.refresh()
            self._session = TlsSession(files.context())

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._plain:
            if not self._advance():
                return 0
        target = memoryview(buffer)
        size = min(len(target), len(self._plain))
        target[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size

    def write(self, data: Any) -> int:
        view = memoryview(data)
        done = 0
        while done < len(view):
            with self._lock:
                done += self._session.seal([view[done:]], _WRITE_BYTES)
            self._flush()
        return len(view)

    def close(self) -> None:
        if not self.closed:
            with self._lock:
                self._session.close()
                out = self._session.take()
            with suppress(OSError):
                self._socket.sendall(out)
        super().close()

    def _flush(self) -> None:
        with self._sending:
            with self._lock:
                out = self._session.take()
            self._socket.sendall(out)

    def _advance(self) -> bool:
        """Take in what comes next; False at the end."""
        came = self._socket.recv(RECORD_BYTES)
        with self._lock:
            self._session.feed(came)
            if not self._is_open:
                self._is_open = self._session.handshake()
            if self._is_open:
                self._plain = self._buffer[: self._session.read_into(self._buffer)]
            has_output = self._session.has_output
        if has_output:
            self._flush()
        return (bool(came) and not self._session.is_closed) or bool(self._plain)
