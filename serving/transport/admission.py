"""Limits the number of connections, in total and per address, and rejects addresses that misbehave or connect too
often."""

import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from serving.http2.errors import MISBEHAVIOUR, Closing

# A client that is disconnected for misbehaviour may reconnect immediately, with a new budget. This many connections of
# an address may misbehave, and this many more per second; then all connections from the address are rejected for a
# while.
_BAD_CONNECTIONS = 16
_BAD_CONNECTIONS_PER_S = 1.0
# A new connection costs up to 1 ms, most of it for the TLS handshake. An address may open as many at once as it may
# have (or this many, if that is more), and this many per second.
_NEW_CONNECTIONS = 64
_NEW_CONNECTIONS_PER_S = 250.0
# Maximum number of addresses that are stored for each; the oldest are dropped first.
_MAX_PEERS = 4096
# How long a rejected connection stays open, and how many may: if it is closed immediately, a client may reconnect
# thousands of times per second.
_DETAINED = frozenset((Closing.BAD_PEER, Closing.TOO_FREQUENT))
_DETAINED_S = 1.0
_MAX_DETAINED = 128
_LEAST_BUFFER = 2048


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on connections; 0 means no limit."""

    in_all: int = 0
    per_peer: int = 0


NO_LIMITS = ConnectionLimits()


class _RecentCounts:
    """Numbers of events by key, each reduced by `per_s` per second."""

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        # The number, and when it was last updated; the key updated last is at the end.
        self._counts: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, key: str) -> float:
        number, since = self._counts.get(key, (0.0, 0.0))
        number = max(0.0, number - (self._clock() - since) * self._per_s)
        if not number:
            self._counts.pop(key, None)
        return number

    def add(self, key: str) -> None:
        number = self.of(key) + 1
        self._counts.pop(key, None)
        self._counts[key] = (number, self._clock())
        if len(self._counts) > _MAX_PEERS:
            del self._counts[next(iter(self._counts))]


class Admission:
    """Counts the connections of one server, where they are accepted."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        # Connections by peer: those that misbehaved, and new ones.
        self._bad = _RecentCounts(_BAD_CONNECTIONS_PER_S, clock)
        self._new = _RecentCounts(_NEW_CONNECTIONS_PER_S, clock)
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
            if self._bad.of(peer) >= _BAD_CONNECTIONS:
                return Closing.BAD_PEER
            if self._new.of(peer) >= max(self.limits.per_peer, _NEW_CONNECTIONS):
                return Closing.TOO_FREQUENT
            self._new.add(peer)
        self._connections += 1
        self._of_peer[peer] += 1
        return None

    def refuse(self, accepted: socket.socket, reason: Closing) -> None:
        """Close a connection that was not admitted, now or in a later call of `let_go`."""
        if reason not in _DETAINED or len(self._detained) >= _MAX_DETAINED:
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
            self._bad.add(peer)
        self._connections -= 1
        self._of_peer[peer] -= 1
        if not self._of_peer[peer]:
            del self._of_peer[peer]
