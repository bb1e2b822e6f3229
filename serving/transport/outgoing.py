"""Bytes on their way out of one connection: written at once as far as the socket takes them, kept in order else."""

import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from serving.http2.limits import Limits
from serving.http2.memory import ClientMemory
from serving.transport.tls_socket import TlsSocket

# Pieces given to the kernel in one call: of what was kept, and the most that it takes.
_PIECES = 64
_MOST_PIECES = 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Pieces = Sequence[bytes | memoryview]


class Outgoing:
    """Not for two threads at once. `on_change` is called when something is left unsent, or too much, or less again."""

    def __init__(
        self, sock: socket.socket | TlsSocket, limits: Limits, memory: ClientMemory, on_change: Callable[[], None]
    ) -> None:
        self._socket = sock
        self._limits = limits
        self._memory = memory
        self.on_change = on_change
        self._unsent: deque[bytes | memoryview] = deque()
        self.unsent_bytes = 0
        # All bytes that had to wait until now, and how many there were at a time when some did.
        self._kept_bytes = 0
        self._mark: tuple[float, int] | None = None
        self.lost = False
        self.finished = False

    @property
    def is_empty(self) -> bool:
        return not self._unsent

    @property
    def is_choked(self) -> bool:
        """So much is unsent that nothing more should be read."""
        return bool(self._unsent) and (
            not self._memory.has_room(self.unsent_bytes) or len(self._unsent) > self._limits.max_unsent_pieces
        )

    def is_overdue(self, now: float) -> bool:
        """Bytes have waited too long for the socket to take them. Asked a few times a second."""
        if not self._unsent:
            self._mark = None
        elif self._mark is None or self._kept_bytes - self.unsent_bytes >= self._mark[1]:
            self._mark = (now, self._kept_bytes)
        return self._mark is not None and now > self._mark[0] + self._limits.unread_s

    def write(self, parts: Pieces) -> None:
        if self.lost or self.finished:
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
            self._hold(-sent)
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
        if not self.finished:
            self.finished = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def lose(self, by_reset: bool = False) -> None:
        """Nothing more goes out; the polling thread sees its end."""
        if not self.lost:
            self.lost = True
            with suppress(OSError):
                if self._unsent or by_reset:
                    # Nobody reads: the kernel must not keep its buffer for as long as it would try to send it.
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                self._socket.shutdown(socket.SHUT_RDWR)
            self._unsent.clear()
            self._hold(-self.unsent_bytes)

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
            self._hold(size - sent)
            self._kept_bytes += size - sent
            sent = 0

    def _hold(self, size: int) -> None:
        self.unsent_bytes += size
        self._memory.held_bytes += size
