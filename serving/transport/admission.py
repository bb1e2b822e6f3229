"""How many connections there may be, in all and from one address, and how often one may misbehave."""

import ipaddress
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from serving.http2.errors import MISBEHAVIOUR, Closing

# Of an IPv6 address: one customer has at least this network.
_IPV6_NETWORK = 64
# A client that is closed for misbehaviour comes back at once, and with a new budget. So many of its connections may be,
# and so many more a second; then it is refused. Others from its address are refused with it meanwhile.
_BAD_CONNECTIONS = 16
_BAD_CONNECTIONS_PER_S = 1.0
# Addresses of which that is known; those that misbehaved longest ago are forgotten first.
_BAD_PEERS = 4096
# How long such a client waits until its connection is closed, and how many may wait: one that is let go at once comes
# back at once, thousands of times a second.
_DETAINED_S = 1.0
_MAX_DETAINED = 128
_LEAST_BUFFER = 2048


@dataclass(frozen=True)
class ConnectionLimits:
    """0: any number."""

    in_all: int = 0
    per_peer: int = 0


NO_LIMITS = ConnectionLimits()


class Admission:
    """Counts the connections of one server, where they are accepted."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        # By peer: how many connections misbehaved, less what time forgave, and when that was worked out.
        self._bad: dict[str, tuple[float, float]] = {}
        # Connections that were refused, and when they are closed.
        self._detained: deque[tuple[float, socket.socket]] = deque()
        self._connections = 0
        self._of_peer: Counter[str] = Counter()

    def admit(self, peer: str) -> Closing | None:
        """None where it is counted from now on, until it is given to `release`; else why it must be closed."""
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
        """Close a connection that was not admitted, now or when `let_go` is called later."""
        if reason is not Closing.BAD_PEER or len(self._detained) >= _MAX_DETAINED:
            accepted.close()
            return
        with suppress(OSError):
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LEAST_BUFFER)
        self._detained.append((self._clock() + _DETAINED_S, accepted))

    def let_go(self) -> None:
        """About once a second."""
        while self._detained and self._detained[0][0] <= self._clock():
            self._detained.popleft()[1].close()

    def close(self) -> None:
        """Close all that wait."""
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
    """The client, as `Admission` tells clients apart, of what `accept` says; empty for a Unix socket, where all are
    one."""
    if not isinstance(address, tuple):
        return ""
    host = str(address[0]).removeprefix("::ffff:")  # IPv4 on a socket of IPv6
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], _IPV6_NETWORK), strict=False))
