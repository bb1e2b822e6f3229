"""Connections accepted by one process and handed to the worker that has the fewest.

The kernel would draw a worker for each connection at random (SO_REUSEPORT); with few connections some workers then get
most of them while others idle. Descriptors go over a Unix socket per worker; a byte comes back for each that closed.
What a worker that ended had not taken yet is handed to another.
"""

import logging
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.transport.listening import BACKLOG, bound, bound_port, stop_listening

_log = logging.getLogger(__name__)

_ACCEPT_AT_ONCE = 64
_PAUSE_S = 0.01


@dataclass
class _HandoffWorker:
    """One worker, the socket that it gets connections over, and how many it has; it gets none until it is ready, and
    while it gives no sign of life only those that no other can take. `its_end`: to read what it did not."""

    channel: socket.socket
    its_end: socket.socket
    ready: bool = False
    is_silent: bool = False
    connections: int = 0


class ConnectionHandoff:
    """Listens from the first `ready` on; before that clients are refused, as by a server that is not up."""

    def __init__(self, host: str, port: int) -> None:
        self._listener = bound(host, port)
        self.port = bound_port(self._listener)
        self._listener.setblocking(False)
        self._workers: dict[int, _HandoffWorker] = {}
        # Accepted, and no worker to take them.
        self._waiting: list[socket.socket] = []

    def __enter__(self) -> "ConnectionHandoff":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_accepting()
        for index in list(self._workers):
            self.close(index)
        for connection in self._waiting:
            connection.close()

    def open(self, index: int) -> socket.socket:
        """The end that worker `index` takes its connections from."""
        mine, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        mine.setblocking(False)
        self._workers[index] = _HandoffWorker(mine, workers.dup())
        return workers

    def mark_ready(self, index: int) -> None:
        if self._listener.fileno() >= 0:  # a worker may come up after all were asked to stop
            self._workers[index].ready = True
            self._listener.listen(BACKLOG)
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                with connection:
                    self._hand_over(connection)

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
            for connection in _untaken(worker.its_end):
                with connection:
                    self._hand_over(connection)

    def forked(self) -> None:
        """In a worker: none of this is its own."""
        self._listener.close()
        for worker in self._workers.values():
            worker.channel.close()
            worker.its_end.close()
        for connection in self._waiting:
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
        try:
            closed = len(worker.channel.recv(1 << 12))
        except BlockingIOError:
            return
        except OSError:
            closed = 0
        worker.connections -= closed
        if not closed:
            worker.ready = False  # it is about to end

    def _accept(self) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                accepted, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("accepting a connection failed: %s", error)
                time.sleep(_PAUSE_S)  # mostly because there are too many
                return
            with accepted:
                self._hand_over(accepted)

    def _hand_over(self, accepted: socket.socket) -> None:
        """To the ready worker with the fewest; to the next where one can't take it."""
        ready = [worker for worker in self._workers.values() if worker.ready]
        for worker in sorted(ready, key=lambda each: (each.is_silent, each.connections)):
            try:
                socket.send_fds(worker.channel, [b"+"], [accepted.fileno()])
            except OSError:
                continue
            worker.connections += 1
            return
        if ready or self._listener.fileno() < 0:
            _log.error("no worker could accept a connection")
        else:
            self._waiting.append(accepted.dup())


def _untaken(its_end: socket.socket) -> Iterator[socket.socket]:
    """What lies in the end of a worker that is gone."""
    its_end.setblocking(False)
    while True:
        try:
            handed, descriptors, _, _ = socket.recv_fds(its_end, 1 << 10, 64)
        except OSError:  # nothing is left
            return
        yield from [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if not handed:
            return
