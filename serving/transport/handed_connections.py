"""The worker's end of the connection handoff, and its messages: a connection's number with its descriptor, or the
number of rejected connections. The worker returns the connection's number when it is closed."""

import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from serving.http2.errors import MISBEHAVIOUR, Closing
from serving.transport.closings import Closings

_log = logging.getLogger(__name__)

# A kind, and a connection's number or a count.
MESSAGE = struct.Struct("=cI")
CONNECTION = b"+"
REFUSED = {
    b"!": Closing.TOO_MANY,
    b"?": Closing.TOO_MANY_OF_PEER,
    b"#": Closing.BAD_PEER,
    b"%": Closing.TOO_FREQUENT,
}
# Reports of a worker about a closed connection: it misbehaved, or it did not.
BAD, CLOSED = b"x", b"-"
_TAKEN_AT_ONCE = 64

# Called when a connection is closed, with the reason.
OnClosed = Callable[[Closing], None]


class HandedConnections:
    """`on_connection` gets each socket and a callback for when it is closed."""

    def __init__(
        self,
        channel: socket.socket,
        on_connection: Callable[[socket.socket, OnClosed], None],
        closings: Closings,
    ) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._on_connection = on_connection
        self._closings = closings
        # Reports of closed connections that are not sent yet.
        self._closed: deque[bytes] = deque()

    def fileno(self) -> int:
        return self._channel.fileno()

    def close(self) -> None:
        """Tell the other process that no more connections are accepted here."""
        with suppress(OSError):  # it is gone
            # Reaches the other process, even though it also has this end open.
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    def take(self) -> bool:
        """Receive a limited number of messages; returns False if the other process has ended."""
        for _ in range(_TAKEN_AT_ONCE):
            try:
                message, descriptors, _, _ = socket.recv_fds(self._channel, MESSAGE.size, 1)
            except BlockingIOError:
                return True
            except OSError:
                message, descriptors = b"", []
            if not message:
                return False
            kind, number = MESSAGE.unpack(message)
            if kind in REFUSED:
                self._closings.add(REFUSED[kind], "several clients", number=number)
                continue
            on_closed = partial(self._on_closed, number)
            if descriptors:
                self._on_connection(socket.socket(fileno=descriptors[0]), on_closed)
            else:
                _log.error("a connection was lost between supervisor and worker: too many open files")
                on_closed(Closing.CLIENT)
        return True

    def _on_closed(self, number: int, reason: Closing) -> None:
        self._closed.append(MESSAGE.pack(BAD if reason in MISBEHAVIOUR else CLOSED, number))
        self.report()

    def report(self) -> None:
        """Report closed connections to the other process, as far as its socket accepts them."""
        while self._closed:
            try:
                self._channel.send(self._closed[0])
            except BlockingIOError:
                return
            except OSError:  # the other process has ended
                self._closed.clear()
                return
            self._closed.popleft()
