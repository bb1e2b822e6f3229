"""The connections of one process. Requests go to the one with the fewest in flight; lost ones are reopened."""

import select
import socket
import time
from collections.abc import Sequence
from functools import partial

from loadtest.errors import GeneratorError
from loadtest.generator import request_frames
from loadtest.generator.client_connection import ClientConnection, ConnectTls
from loadtest.generator.exchange import Exchange
from loadtest.generator.request_frames import PreparedFrames
from loadtest.generator.tls_client_socket import TlsClientSocket, client_context

_CONNECT_TIMEOUT_S = 10.0
_RECONNECT_S = 0.1


class ConnectionPool:
    def __init__(self, address: str, requests: PreparedFrames, connections: int, tls_ca: str = "") -> None:
        """`tls_ca`: the PEM file of the authorities that sign the server's certificate; empty: plain text."""
        self._address = address
        self._connect_tls: ConnectTls | None = None
        if tls_ca:
            host = address.rpartition(":")[0].strip("[]")
            self._connect_tls = partial(TlsClientSocket, context=client_context(tls_ca), server_name=host)
        self._numeric = resolve(address)
        self._requests = requests
        self._open = [self._connect() for _ in range(connections)]
        self._retiring: list[ClientConnection] = []
        self._reconnect_at = 0.0
        self._turn = 0
        self._lookup()

    def _connect(self) -> ClientConnection:
        return ClientConnection(self._numeric, self._requests, self._connect_tls)

    def _lookup(self) -> None:
        self.by_fd = {connection.fd: connection for connection in (*self._open, *self._retiring)}

    def wait_ready(self) -> None:
        until = time.monotonic() + _CONNECT_TIMEOUT_S
        while not all(connection.ready for connection in self._open):
            now = time.monotonic()
            self.step(0.05, ())
            for connection in self._open:
                if connection.lost or now > until:
                    reason = connection.reason if connection.lost else "no HTTP/2 settings were received"
                    raise GeneratorError(f"no gRPC server answers at {self._address}: {reason}")

    def send(self, exchange: Exchange, now: float) -> bool:
        """Send a request; returns False if no connection is available."""
        chosen, fewest = None, 1 << 62
        connections, count = self._open, len(self._open)
        # Rotate among equals, or a light load would use only the first connection.
        self._turn = turn = (self._turn + 1) % count
        for position in range(count):
            connection = connections[turn - position]
            load = len(connection.under_way) + len(connection.waiting)
            if load < fewest and connection.ready:
                chosen, fewest = connection, load
                if not load:
                    break
        if chosen is None:
            return False
        chosen.send(exchange, now)
        return True

    def step(self, timeout_s: float, others: Sequence[int]) -> tuple[list[Exchange], bool]:
        """Wait for events, at most `timeout_s`; returns the exchanges that ended, and whether one of `others` is
        readable.

        Uses select, because Python rounds the timeout of epoll up to milliseconds, as long as a response takes.
        """
        writers = [fd for fd, connection in self.by_fd.items() if connection.wants_to_write]
        readable, writable, _ = select.select((*self.by_fd, *others), writers, (), timeout_s)
        now = time.monotonic()
        ended: list[Exchange] = []
        other = False
        for fd in readable:
            connection = self.by_fd.get(fd)
            if connection is None:
                other = True
            else:
                ended += connection.on_readable(now)
        for fd in writable:
            ended += self.by_fd[fd].on_writable(now)
        return ended, other

    def housekeep(self, now: float, deadline_s: float) -> list[Exchange]:
        """Expire exchanges over their deadline and replace lost connections; returns the exchanges that ended."""
        ended: list[Exchange] = []
        for connection in self.by_fd.values():
            ended += connection.expire(now - deadline_s)
        gone = [c for c in self._retiring if c.lost or not c.under_way]
        if not gone and (now < self._reconnect_at or all(c.ready or not (c.lost or c.retiring) for c in self._open)):
            return ended
        for connection in gone:
            self._retiring.remove(connection)
            connection.close()
        for place, connection in enumerate(self._open):
            if connection.lost:
                connection.close()
            elif connection.retiring:
                self._retiring.append(connection)
            else:
                continue
            self._reconnect_at = now + _RECONNECT_S
            self._open[place] = self._connect()
            for waiting in connection.waiting:
                if not self.send(waiting, now):
                    waiting.code = request_frames.UNAVAILABLE
                    ended.append(waiting)
        self._lookup()
        return ended

    @property
    def under_way(self) -> int:
        return sum(connection.load for connection in self.by_fd.values())

    def close(self) -> None:
        for connection in self.by_fd.values():
            connection.close()


def resolve(address: str) -> tuple[str, int]:
    """The first numeric address of host:port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise GeneratorError(f"address {address!r}; expected host:port, for example localhost:8500")
    try:
        found = socket.getaddrinfo(host.strip("[]") or "localhost", int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise GeneratorError(f"address {address!r}: {error}") from error
    # A name may have several addresses. IPv4 comes first, because a server may listen on IPv4 only.
    numeric = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)[0][4]
    return str(numeric[0]), int(numeric[1])
