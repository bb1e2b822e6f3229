"""Connections accepted by one process and handed to the worker that has the fewest.

The kernel would draw a worker for each connection at random (SO_REUSEPORT); with few connections some workers then get
most of them while others idle. Descriptors go over a Unix socket per worker; handed_connections.py has the messages.
Connections that a worker had not taken when it ended are handed to another worker.
"""

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from serving.http2.errors import Closing
from serving.transport.admission import NO_LIMITS, Admission, ConnectionLimits, peer_of
from serving.transport.handed_connections import BAD, CONNECTION, MESSAGE, REFUSED
from serving.transport.listening import BACKLOG, allow_open_files, bound, bound_port, stop_listening

_log = logging.getLogger(__name__)

_ACCEPT_AT_ONCE = 64
_PAUSE_S = 0.01
_NUMBERS = 1 << 32


@dataclass
class _HandoffWorker:
    """One worker, the socket that it gets connections over, and those that it has, by number, with their peers; it
    gets none until it is ready, and while it gives no sign of life only those that no other can take. `its_end`: to
    read what it did not."""

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
        self._admission = Admission(limits)
        allow_open_files(limits.in_all)
        self._number = 0
        # Reported to a worker, which has the metrics.
        self._refused: Counter[Closing] = Counter()
        # Accepted, and no worker to take them; with their peers.
        self._waiting: list[tuple[socket.socket, str]] = []

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
                with connection:
                    self._hand_over(connection, peer)

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
            for connection, number in _untaken(worker.its_end):
                with connection:
                    self._hand_over(connection, worker.connections.pop(number, ""))
        for peer in worker.connections.values():
            self._admission.release(peer, Closing.CLIENT)

    def forked(self) -> None:
        """In a worker: none of this is its own."""
        self._listener.close()
        self._admission.close()
        for worker in self._workers.values():
            worker.channel.close()
            worker.its_end.close()
        for connection, _peer in self._waiting:
            connection.close()

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
                message = worker.channel.recv(MESSAGE.size)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                worker.ready = False  # it is about to end
                return
            kind, number = MESSAGE.unpack(message)
            peer = worker.connections.pop(number, None)
            if peer is not None:
                self._admission.release(peer, Closing.FLOOD if kind == BAD else Closing.CLIENT)

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
                with accepted:
                    self._hand_over(accepted, peer)
            else:
                self._refused[refused] += 1
                self._admission.refuse(accepted, refused)
        self._report_refused()

    def _hand_over(self, accepted: socket.socket, peer: str) -> None:
        """To the ready worker with the fewest; to the next where one can't take it. `peer` was admitted."""
        self._number = (self._number + 1) % _NUMBERS
        message = MESSAGE.pack(CONNECTION, self._number)
        ready = self._ready_workers()
        for worker in ready:
            try:
                socket.send_fds(worker.channel, [message], [accepted.fileno()])
            except OSError:
                continue
            worker.connections[self._number] = peer
            return
        if ready or self._listener.fileno() < 0:
            _log.error("no worker could accept a connection")
            self._admission.release(peer, Closing.CLIENT)
        else:
            self._waiting.append((accepted.dup(), peer))

    def _report_refused(self) -> None:
        for kind, reason in REFUSED.items():
            for worker in self._ready_workers() if self._refused[reason] else ():
                try:
                    worker.channel.send(MESSAGE.pack(kind, self._refused[reason]))
                except OSError:
                    continue
                self._refused[reason] = 0
                break

    def _ready_workers(self) -> Sequence[_HandoffWorker]:
        """Those with the fewest connections first."""
        ready = (each for each in self._workers.values() if each.ready)
        return sorted(ready, key=lambda each: (each.is_silent, len(each.connections)))


def _untaken(its_end: socket.socket) -> Iterator[tuple[socket.socket, int]]:
    """Connections that lie in the end of a worker that is gone, and their numbers."""
    its_end.setblocking(False)
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(its_end, MESSAGE.size, 1)
        except OSError:  # nothing is left
            return
        if not message:
            return
        for descriptor in descriptors:
            yield socket.socket(fileno=descriptor), MESSAGE.unpack(message)[1]
