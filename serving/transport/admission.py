"""How many connections there may be, in all and from one address."""

import ipaddress
from collections import Counter
from dataclasses import dataclass

from serving.http2.errors import Closing

# Of an IPv6 address: one customer has at least this network.
_IPV6_NETWORK = 64


@dataclass(frozen=True)
class ConnectionLimits:
    """0: any number."""

    in_all: int = 0
    per_peer: int = 0


NO_LIMITS = ConnectionLimits()


class Admission:
    """Counts the connections of one server, where they are accepted."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._connections = 0
        self._of_peer: Counter[str] = Counter()

    def admit(self, peer: str) -> Closing | None:
        """None where it is counted from now on, until it is given to `release`; else why it must be closed."""
        if self.limits.in_all and self._connections >= self.limits.in_all:
            return Closing.TOO_MANY
        if self.limits.per_peer and peer and self._of_peer[peer] >= self.limits.per_peer:
            return Closing.TOO_MANY_OF_PEER
        self._connections += 1
        self._of_peer[peer] += 1
        return None

    def release(self, peer: str) -> None:
        self._connections -= 1
        self._of_peer[peer] -= 1
        if not self._of_peer[peer]:
            del self._of_peer[peer]


def peer_of(address: object) -> str:
    """The client, as `Admission` tells clients apart, of what `accept` says; empty for a Unix socket, where all are
    one."""
    if not isinstance(address, tuple):
        return ""
    host = str(address[0])
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], _IPV6_NETWORK), strict=False))
