"""Outgoing bytes of one connection: written immediately as far as the socket accepts them, otherwise queued in
order."""

import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from serving.http2.limits import Limits
from serving.http2.memory import ClientMemory
from serving.transport.tls_socket import TlsSocket

# Pieces passed to the kernel in one call: from the queue, and the maximum that it accepts.
_PIECES = 64
_MOST_PIECES = 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Pieces = Sequence[bytes | memoryview]


class Outgoing:
    """Not safe for concurrent use. `on_change` is called when bytes become unsent, when there are too many, and when
    there are fewer again."""

    def __init__(
        self, sock: socket.socket | TlsSocket, limits: Limits, memory: ClientMemory, on_change: Callable[[], None]
    ) -> None:
        self._socket = sock
        self._limits = limits
        self._memory = memory
        self.on_change = on_change
        self._unsent: deque[bytes | memoryview] = deque()
        self.unsent_bytes = 0
        # Total bytes queued so far, and a mark: a time and the total at that time, replaced once those bytes are sent.
        self._kept_bytes = 0
        self._mark: tuple[float, int] | None = None
        self.lost = False
        self.finished = False

    @property
    def is_empty(self) -> bool:
        return not self._unsent

    @property
    def is_choked(self) -> bool:
        """Whether so much is unsent that nothing more should be read."""
        return bool(self._unsent) and (
            not self._memory.has_room(self.unsent_bytes) or len(self._unsent) > self._limits.max_unsent_pieces
        )

    def is_overdue(self, now: float) -> bool:
        """Whether bytes have waited too long for the socket. Called a few times a second."""
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
        """The socket is writable again."""
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
        """End sending so that everything sent still arrives.

        If both directions were closed, the socket would answer further bytes of the client with a reset, and unread
        bytes would be lost.
        """
        if not self.finished:
            self.finished = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def lose(self, by_reset: bool = False) -> None:
        """Stop sending; the polling thread notices the end of the connection."""
        if not self.lost:
            self.lost = True
            with suppress(OSError):
                if self._unsent or by_reset:
                    # The client does not read: the kernel must not keep the buffer while it tries to send it.
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
