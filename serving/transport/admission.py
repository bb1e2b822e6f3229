"""Limits the number of connections, in total and per address, and rejects addresses that misbehave often."""

import ipaddress
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from serving.http2.errors import MISBEHAVIOUR, Closing

# Prefix length that identifies an IPv6 client: one customer has at least this network.
_IPV6_NETWORK = 64
# A client that is disconnected for misbehaviour may reconnect immediately, with a new budget. This many connections of
# an address may misbehave, and this many more per second; then all connections from the address are rejected for a
# while.
_BAD_CONNECTIONS = 16
_BAD_CONNECTIONS_PER_S = 1.0
# Maximum number of such addresses that are stored; the oldest are dropped first.
_BAD_PEERS = 4096
# How long a rejected connection stays open, and how many may: if it is closed immediately, a client may reconnect
# thousands of times per second.
_DETAINED_S = 1.0
_MAX_DETAINED = 128
_LEAST_BUFFER = 2048


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on connections; 0 means no limit."""

    in_all: int = 0
    per_peer: int = 0


NO_LIMITS = ConnectionLimits()


class Admission:
    """Counts the connections of one server, where they are accepted."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        # By peer: number of connections that misbehaved, reduced over time, and when it was last updated.
        self._bad: dict[str, tuple[float, float]] = {}
        # Rejected connections, and when they will be closed.
        self._detained: deque[tuple[float, socket.socket]] = deque()
        self._connections = 0
        self._of_peer: Counter[str] = Counter()

    def admit(self, peer: str) -> Closing | None:
        """Count a new connection until `release`; returns None, or the reason why it must be closed."""
        if self.limits.in_all and self._connections >= self.limits.in_all:
            return Closing.TOO_MANY
        if self.limits.per_peer and peer:
            if self._of_peer[peer] >= self.limits.per_peer:
                return Closing.TOO_MANY_OF_PEER
            if self._bad and self._bad_connections(peer) >= _BAD_CONNECTIONS:
                return Closing.BAD_PEER
        self._connections += 1
        self._of_peer[peer] += 1
        return None

    def refuse(self, accepted: socket.socket, reason: Closing) -> None:
        """Close a connection that was not admitted, now or in a later call of `let_go`."""
        if reason is not Closing.BAD_PEER or len(self._detained) >= _MAX_DETAINED:
            accepted.close()
            return
        with suppress(OSError):
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LEAST_BUFFER)
        self._detained.append((self._clock() + _DETAINED_S, accepted))

    def let_go(self) -> None:
        """Close the rejected connections whose time has come. Call this about once a second."""
        while self._detained and self._detained[0][0] <= self._clock():
            self._detained.popleft()[1].close()

    def close(self) -> None:
        """Close all rejected connections."""
        while self._detained:
            self._detained.popleft()[1].close()

    def release(self, peer: str, reason: Closing) -> None:
        """A connection that was admitted is closed."""
        if reason in MISBEHAVIOUR:
            self._bad[peer] = (self._bad_connections(peer) + 1, self._clock())
            if len(self._bad) > _BAD_PEERS:
                del self._bad[next(iter(self._bad))]
        self._connections -= 1
        self._of_peer[peer] -= 1
        if not self._of_peer[peer]:
            del self._of_peer[peer]

    def _bad_connections(self, peer: str) -> float:
        number, since = self._bad.pop(peer, (0.0, 0.0))
        number = max(0.0, number - (self._clock() - since) * _BAD_CONNECTIONS_PER_S)
        if number:
            self._bad[peer] = (number, self._clock())
        return number


def peer_of(address: object) -> str:
    """The key by which `Admission` identifies the client of an accepted address; empty for Unix sockets, whose clients
    are all the same."""
    if not isinstance(address, tuple):
        return ""
    host = str(address[0]).removeprefix("::ffff:")  # an IPv4 client on an IPv6 socket
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], _IPV6_NETWORK), strict=False))
