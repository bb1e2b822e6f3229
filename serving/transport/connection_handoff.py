"""Connections accepted by one process and handed to the worker that has the fewest.

The kernel would draw a worker for each connection at random (SO_REUSEPORT); with few connections some workers then get
most of them while others idle. A Unix socket per worker takes messages: a connection's number with its descriptor, or
how many connections were refused; the number comes back when the connection has closed. Connections that a worker had
not taken when it ended are handed to another worker.
"""

import logging
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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
    """One worker, the socket that it gets connections over, and those that it has, by number, with their peers.

    It gets none until it is ready, and while it gives no sign of life only those that no other can take. `its_end` is
    the worker's end of the socket, to read what the worker did not.
    """

    channel: socket.socket
    its_end: socket.socket
    ready: bool = False
    is_silent: bool = False
    connections: dict[int, str] = field(default_factory=dict)


class ConnectionHandoff:
    """Listens from the first `ready` on; before that clients are refused, as by a server that is not up."""

    def __init__(self, host: str, port: int, limits: ConnectionLimits = NO_LIMITS) -> None:
        self._listener = bound(host, port)
        self.port = bound_port(self._listener)
        self._listener.setblocking(False)
        self._workers: dict[int, _HandoffWorker] = {}
        # Accepted connections with their peers, while no worker can take them.
        self._waiting: list[tuple[socket.socket, str]] = []
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
        for connection, _peer in self._waiting:
            connection.close()

    def open(self, index: int) -> socket.socket:
        """The end that worker `index` takes its connections from."""
        mine, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        self._workers[index] = _HandoffWorker(mine, workers.dup())
        return workers

    def mark_ready(self, index: int) -> None:
        if self._listener.fileno() >= 0:  # a worker may come up after all were asked to stop
            self._workers[index].ready = True
            self._listener.listen(BACKLOG)
            waiting, self._waiting = self._waiting, []
            for connection, peer in waiting:
                self._pass_on(connection, peer)

    def mark_silent(self, index: int, is_silent: bool) -> None:
        self._workers[index].is_silent = is_silent

    def is_ready(self, index: int) -> bool:
        """Whether the worker takes connections: it was ready once, and does not drain."""
        return index in self._workers and self._workers[index].ready

    def close(self, index: int) -> None:
        """The worker has ended, and its connections with it, but for those that it had not taken yet."""
        worker = self._workers.pop(index, None)
        if worker is None:
            return
        worker.channel.close()
        with worker.its_end:
            for number, connection in _untaken(worker.its_end):
                self._pass_on(connection, worker.connections.pop(number))
        for peer in worker.connections.values():
            self._admission.release(peer, Closing.CLIENT)

    def forked(self) -> None:
        """In a worker: none of this is its own."""
        self._listener.close()
        for worker in self._workers.values():
            worker.channel.close()
            worker.its_end.close()
        for connection, _peer in self._waiting:
            connection.close()

    def stop_accepting(self) -> None:
        stop_listening(self._listener)

    def sockets(self) -> Sequence[socket.socket]:
        """What to wait for; new connections wait until a worker can take them."""
        ready = [worker.channel for worker in self._workers.values() if worker.ready]
        return [self._listener, *ready] if ready else []

    def handle(self, readable: Sequence[socket.socket]) -> None:
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
            if refused is None:
                self._pass_on(accepted, peer)
            else:
                accepted.close()
                self._refused[refused] += 1
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

    def _pass_on(self, connection: socket.socket, peer: str) -> None:
        """Hand an accepted connection over, or keep it until a worker is ready."""
        with connection:
            if self._hand_over(connection, peer):
                return
            if not self._ready_workers() and self._listener.fileno() >= 0:
                self._waiting.append((connection.dup(), peer))
                return
        self._admission.release(peer, Closing.CLIENT)
        _log.error("no worker could accept a connection")

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
        return sorted(ready, key=lambda each: (each.is_silent, len(each.connections)))


def _untaken(its_end: socket.socket) -> Iterator[tuple[int, socket.socket]]:
    """The connections, with their numbers, that still lie in the end of a worker that has ended."""
    its_end.setblocking(False)
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(its_end, _MESSAGE.size, 1)
        except OSError:  # nothing is left
            return
        if not message:
            return
        for descriptor in descriptors:
            yield _MESSAGE.unpack(message)[1], socket.socket(fileno=descriptor)


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
        """Take no more. The other process learns of it although it holds this end as well."""
        with suppress(OSError):  # the other process is gone
            self._channel.shutdown(socket.SHUT_RDWR)
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
