"""Connections accepted by one process and handed to the worker that has the fewest.

The kernel would draw a worker for each connection at random (SO_REUSEPORT); with few connections some workers then get
most of them while others idle. A Unix socket per worker takes messages: a connection's number with its descriptor, or
how many connections were refused; the number comes back when the connection closed.
"""

import logging
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from serving.http2.errors import MISBEHAVIOUR, Closing
from serving.transport.admission import NO_LIMITS, Admission, ConnectionLimits, peer_of
from serving.transport.closings import Closings
from serving.transport.listening import BACKLOG, allow_open_files, bound, bound_port, stop_listening

_log = logging.getLogger(__name__)

_ACCEPT_AT_ONCE = 64
_PAUSE_S = 0.01


# A kind of message, and a connection's number or a count.
_MESSAGE = struct.Struct("=cI")
_CONNECTION = b"+"
_REFUSED = {b"!": Closing.TOO_MANY, b"?": Closing.TOO_MANY_OF_PEER, b"#": Closing.BAD_PEER}
# What a worker says of a connection that closed: it misbehaved, or did not.
_BAD, _CLOSED = b"x", b"-"
_NUMBERS = 1 << 32

# Called when a connection is closed, with the reason.
OnClosed = Callable[[Closing], None]


@dataclass
class _HandoffWorker:
    """One worker, the socket that it gets connections over, and those that it has, by number, with their peers; it
    gets none until it is ready."""

    channel: socket.socket
    ready: bool = False
    connections: dict[int, str] = field(default_factory=dict)


class ConnectionHandoff:
    """Listens from the first `ready` on; before that clients are refused, as by a server that is not up."""

    def __init__(self, host: str, port: int, limits: ConnectionLimits = NO_LIMITS) -> None:
        self._listener = bound(host, port)
        self.port = bound_port(self._listener)
        self._listener.setblocking(False)
        self._workers: dict[int, _HandoffWorker] = {}
        self._admission = Admission(limits)
        allow_open_files(limits.in_all)
        self._number = 0
        # Reported to a worker, which has the metrics.
        self._refused: Counter[Closing] = Counter()

    def __enter__(self) -> "ConnectionHandoff":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_accepting()
        for index in list(self._workers):
            self.close(index)

    def open(self, index: int) -> socket.socket:
        """The end that worker `index` takes its connections from."""
        mine, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        self._workers[index] = _HandoffWorker(mine)
        return workers

    def mark_ready(self, index: int) -> None:
        if self._listener.fileno() >= 0:  # a worker may come up after all were asked to stop
            self._workers[index].ready = True
            self._listener.listen(BACKLOG)

    def close(self, index: int) -> None:
        """The worker has ended, and its connections with it."""
        worker = self._workers.pop(index, None)
        if worker is not None:
            worker.channel.close()
            for peer in worker.connections.values():
                self._admission.release(peer, Closing.CLIENT)

    def forked(self) -> None:
        """In a worker: none of this is its own."""
        self._listener.close()
        self._admission.close()
        for worker in self._workers.values():
            worker.channel.close()

    def stop_accepting(self) -> None:
        stop_listening(self._listener)
        self._admission.close()

    def sockets(self) -> Sequence[socket.socket]:
        """What to wait for; new connections wait until a worker can take them."""
        ready = [worker.channel for worker in self._workers.values() if worker.ready]
        return [self._listener, *ready] if ready else []

    def handle(self, readable: Sequence[socket.socket]) -> None:
        """Also about once a second where nothing is."""
        self._admission.let_go()
        for worker in self._workers.values():
            if worker.channel in readable:
                self._count_closed(worker)
        if self._listener in readable:
            self._accept()

    def _count_closed(self, worker: _HandoffWorker) -> None:
        while True:
            try:
                message = worker.channel.recv(_MESSAGE.size)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                worker.ready = False  # it is about to end
                return
            kind, number = _MESSAGE.unpack(message)
            peer = worker.connections.pop(number, None)
            if peer is not None:
                self._admission.release(peer, Closing.FLOOD if kind == _BAD else Closing.CLIENT)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as error:
                _log.error("accepting a connection failed: %s", error)
                time.sleep(_PAUSE_S)  # mostly because there are too many
                break
            peer = peer_of(address)
            refused = self._admission.admit(peer)
            if refused is not None:
                self._refused[refused] += 1
                self._admission.refuse(accepted, refused)
                continue
            with accepted:
                if not self._hand_over(accepted, peer):
                    self._admission.release(peer, Closing.CLIENT)
                    _log.error("no worker could accept a connection")
        self._report_refused()

    def _hand_over(self, accepted: socket.socket, peer: str) -> bool:
        """To the ready worker with the fewest; to the next where one can't take it."""
        self._number = (self._number + 1) % _NUMBERS
        message = _MESSAGE.pack(_CONNECTION, self._number)
        for worker in self._ready_workers():
            try:
                socket.send_fds(worker.channel, [message], [accepted.fileno()])
            except OSError:
                continue
            worker.connections[self._number] = peer
            return True
        return False

    def _report_refused(self) -> None:
        for kind, reason in _REFUSED.items():
            for worker in self._ready_workers() if self._refused[reason] else ():
                try:
                    worker.channel.send(_MESSAGE.pack(kind, self._refused[reason]))
                except OSError:
                    continue
                self._refused[reason] = 0
                break

    def _ready_workers(self) -> Sequence[_HandoffWorker]:
        ready = (each for each in self._workers.values() if each.ready)
        return sorted(ready, key=lambda each: len(each.connections))


class HandedConnections:
    """A worker's end. `on_connection` gets each socket, and what to call when it is closed."""

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
        # Of connections that closed.
        self._closed: deque[bytes] = deque()

    def fileno(self) -> int:
        return self._channel.fileno()

    def close(self) -> None:
        self._channel.close()

    def take(self) -> bool:
        """What there is, up to some; False where the other process is gone."""
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                message, descriptors, _, _ = socket.recv_fds(self._channel, _MESSAGE.size, 1)
            except BlockingIOError:
                return True
            except OSError:
                message, descriptors = b"", []
            if not message:
                return False
            kind, number = _MESSAGE.unpack(message)
            if kind in _REFUSED:
                self._closings.add(_REFUSED[kind], "several clients", number=number)
                continue
            on_closed = partial(self._on_closed, number)
            if descriptors:
                self._on_connection(socket.socket(fileno=descriptors[0]), on_closed)
            else:
                _log.error("a connection was lost between supervisor and worker: too many open files")
                on_closed(Closing.CLIENT)
        return True

    def _on_closed(self, number: int, reason: Closing) -> None:
        self._closed.append(_MESSAGE.pack(_BAD if reason in MISBEHAVIOUR else _CLOSED, number))
        self.report()

    def report(self) -> None:
        """Tell the other process which connections closed, as far as it listens."""
        while self._closed:
            try:
                self._channel.send(self._closed[0])
            except BlockingIOError:
                return
            except OSError:  # nobody counts any more
                self._closed.clear()
                return
            self._closed.popleft()
