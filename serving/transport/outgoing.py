"""Bytes on their way out of one connection: written at once as far as the socket takes them, kept in order else."""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from serving.http2.limits import Limits
from serving.transport.tls_socket import TlsSocket

# Pieces given to the kernel in one call: of what was kept, and the most that it takes.
_PIECES = 64
_MOST_PIECES = 1024

Pieces = Sequence[bytes | memoryview]


class Outgoing:
    """Not for two threads at once. `on_change` is called when something is left unsent, or too much, or less again."""

    def __init__(self, sock: socket.socket | TlsSocket, limits: Limits, on_change: Callable[[], None]) -> None:
        self._socket = sock
        self._limits = limits
        self.on_change = on_change
        self._unsent: deque[bytes | memoryview] = deque()
        self._unsent_bytes = 0
        self.lost = False
        self._finished = False

    @property
    def is_empty(self) -> bool:
        return not self._unsent

    @property
    def is_choked(self) -> bool:
        """So much is unsent that nothing more should be read."""
        limits = self._limits
        return self._unsent_bytes > limits.max_unsent_bytes or len(self._unsent) > limits.max_unsent_pieces

    def write(self, parts: Pieces) -> None:
        if self.lost or self._finished:
            return
        if self._unsent:
            was_choked = self.is_choked
            self._keep(parts, 0)
            if self.is_choked and not was_choked:
                self.on_change()
            return
        sent = self._send(parts if len(parts) <= _MOST_PIECES else parts[:_MOST_PIECES])
        if sent < sum(map(len, parts)) and not self.lost:
            self._keep(parts, sent)
            self.on_change()

    def flush(self) -> None:
        """The socket takes more again."""
        while self._unsent and not self.lost:
            parts = [self._unsent[i] for i in range(min(len(self._unsent), _PIECES))]
            sent = self._send(parts)
            if not sent:
                break
            self._unsent_bytes -= sent
            while sent:
                first = self._unsent[0]
                if sent < len(first):
                    self._unsent[0] = memoryview(first)[sent:]
                    break
                sent -= len(first)
                self._unsent.popleft()
        self.on_change()

    def finish(self) -> None:
        """Nothing more goes out, and what has gone out arrives.

        Closed both ways, the socket would answer whatever the client still says with a reset, and lose what is unread.
        """
        if not self._finished:
            self._finished = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def lose(self) -> None:
        """Nothing more goes out; the polling thread sees its end."""
        if not self.lost:
            self.lost = True
            self._unsent.clear()
            self._unsent_bytes = 0
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, parts: Pieces) -> int:
        try:
            return self._socket.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.lose()
            return 0

    def _keep(self, parts: Pieces, sent: int) -> None:
        for part in parts:
            size = len(part)
            if sent >= size:
                sent -= size
                continue
            self._unsent.append(memoryview(part)[sent:])
            self._unsent_bytes += size - sent
            sent = 0
