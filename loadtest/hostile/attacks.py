"""The table of attacks: what each sends, the public name of its class, and how a server must end it.

An ending is what the attacker sees: `goaway 11` (ENHANCE_YOUR_CALM), `reset 1` (a stream error), `status 8` (a gRPC
status), `http 505`, or `closed` without a word.
"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from loadtest.hostile.tls_wire import TlsWire
from loadtest.hostile.wire import OPENING

# What is sent next; a number is a pause in seconds.
Pieces = Iterator[bytes | float]


@dataclass(frozen=True)
class Target:
    """A method of the server, and a request that it answers."""

    path: str
    message: bytes


class Kind(Enum):
    FLOOD = auto()  # sends without end, and comes back when it is closed
    CALLS = auto()  # calls without end that are answered with an error each
    STALL = auto()  # sends little or nothing, and waits
    MANY = auto()  # opens connections and keeps them
    HANDSHAKE = auto()  # connects again and again, and leaves after the server's first answer


@dataclass(frozen=True)
class Attack:
    """`ends`: any of these is right. `reads`: whether the attacker reads what the server sends. `receive_bytes`: how
    much its kernel may take for it; 0 for the usual megabytes. `wire`: makes TLS of what it sends, if it does."""

    name: str
    known_as: str
    pieces: Callable[[Target], Pieces]
    ends: frozenset[str]
    kind: Kind = Kind.FLOOD
    opening: bytes = OPENING
    reads: bool = True
    receive_bytes: int = 0
    wire: Callable[[socket.socket], TlsWire] | None = None

    def __str__(self) -> str:
        return self.name


CALM = frozenset(("goaway 11",))


def ends(*names: str) -> frozenset[str]:
    return frozenset(names)
