"""Accepts connections in one process and hands each to the worker that has the fewest.

With SO_REUSEPORT the kernel would pick a worker for each connection at random; with few connections, some workers would
get most of them while others are idle. Descriptors are sent over a Unix socket per worker; handed_connections.py
defines the messages. Connections that a worker had not accepted when it ended are handed to another worker.
"""

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from serving.http2.errors import Closing
from serving.transport.admission import NO_LIMITS, Admission, ConnectionLimits
from serving.transport.client_address import peer_of
from serving.transport.handed_connections import BAD, CONNECTION, MESSAGE, REFUSED
from serving.transport.listening import BACKLOG, allow_open_files, bound, bound_port, stop_listening

_log = logging.getLogger(__name__)

_ACCEPT_AT_ONCE = 64
_PAUSE_S = 0.01
_NUMBERS = 1 << 32


@dataclass
class _HandoffWorker:
    """One worker, the socket over which it gets connections, and its connections, by number, with their peers. It gets
    none until it is ready; without a heartbeat it only gets those that no other worker can take. `its_end` is for
    reading what it did not read."""

    channel: socket.socket
    its_end: socket.socket
    ready: bool = False
    is_silent: bool = False
    connections: dict[int, str] = field(default_factory=dict)


class ConnectionHandoff:
    """Listens from the first `ready` on; before that, connections are refused, as if the server were not running."""

    def __init__(self, host: str, port: int, limits: ConnectionLimits = NO_LIMITS, internal: str = "") -> None:
        """`internal`: path of a second, Unix socket, for other processes of this server."""
        self._listeners = [bound(host, port)]
        self.port = bound_port(self._listeners[0])
        if internal:
            self._listeners.append(bound(f"unix:{internal}", 0))
        for listener in self._listeners:
            listener.setblocking(False)
        self._workers: dict[int, _HandoffWorker] = {}
        self._admission = Admission(limits)
        allow_open_files(limits.in_all)
        self._number = 0
        # Rejected connections, to be reported to a worker, which has the metrics.
        self._refused: Counter[Closing] = Counter()
        # Accepted connections that no worker could take, with their peers.
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
        """The end of the socket from which worker `index` receives its connections."""
        mine, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        self._workers[index] = _HandoffWorker(mine, workers.dup())
        return workers

    def mark_ready(self, index: int) -> None:
        if self._is_open:  # a worker may become ready after all were asked to stop
            self._workers[index].ready = True
            for listener in self._listeners:
                listener.listen(BACKLOG)
            waiting, self._waiting = self._waiting, []
            for connection, peer in waiting:
                with connection:
                    self._hand_over(connection, peer)

    def mark_silent(self, index: int, is_silent: bool) -> None:
        self._workers[index].is_silent = is_silent

    def is_ready(self, index: int) -> bool:
        """Whether the worker accepts connections: it has been ready and is not draining."""
        return index in self._workers and self._workers[index].ready

    def close(self, index: int) -> None:
        """The worker has ended; connections that it had not accepted yet are handed to others."""
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
        """Call this in a worker: closes what belongs to the supervisor."""
        for listener in self._listeners:
            listener.close()
        self._admission.close()
        for worker in self._workers.values():
            worker.channel.close()
            worker.its_end.close()
        for connection, _peer in self._waiting:
            connection.close()

    def stop_accepting(self) -> None:
        for listener in self._listeners:
            stop_listening(listener)
        self._admission.close()

    def sockets(self) -> Sequence[socket.socket]:
        """Sockets to poll; new connections are not accepted until a worker can take them."""
        ready = [worker.channel for worker in self._workers.values() if worker.ready]
        return [*self._listeners, *ready] if ready else []

    def handle(self, readable: Sequence[socket.socket]) -> None:
        """Handle readable sockets. Also call this about once a second if there are none."""
        self._admission.let_go()
        for worker in self._workers.values():
            if worker.channel in readable:
                self._count_closed(worker)
        for listener in self._listeners:
            if listener in readable:
                self._accept(listener)

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

    @property
    def _is_open(self) -> bool:
        return self._listeners[0].fileno() >= 0

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as error:
                _log.error("accepting a connection failed: %s", error)
                time.sleep(_PAUSE_S)  # usually there are too many open files
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
        """Hand a connection to the ready worker with the fewest, or to the next one if that fails. `peer` was
        admitted."""
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
        if ready or not self._is_open:
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
        """Ready workers, those with the fewest connections first."""
        ready = (each for each in self._workers.values() if each.ready)
        return sorted(ready, key=lambda each: (each.is_silent, len(each.connections)))


def _untaken(its_end: socket.socket) -> Iterator[tuple[socket.socket, int]]:
    """Connections and their numbers that a worker had not read when it ended."""
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
