"""The table of attacks: what each sends, the public name of its class, and how a server must end it.

An ending is what the attacker sees: `goaway 11` (ENHANCE_YOUR_CALM), `reset 1` (a stream error), `status 8` (a gRPC
status), `http 505`, or `closed` without a message.
"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from loadtest.hostile.tls_wire import TlsWire
from loadtest.hostile.wire import OPENING

# The data to send, piece by piece; a number is a pause in seconds.
Pieces = Iterator[bytes | float]


@dataclass(frozen=True)
class Target:
    """A method of the server, and a request that it answers."""

    path: str
    message: bytes


class Kind(Enum):
    FLOOD = auto()  # sends without end, and reconnects when its connection is closed
    CALLS = auto()  # makes calls without end, each of which is answered with an error
    STALL = auto()  # sends little or nothing, and waits
    MANY = auto()  # opens connections and keeps them
    HANDSHAKE = auto()  # connects repeatedly, and disconnects after the server's first answer


@dataclass(frozen=True)
class Attack:
    """`ends`: the endings that are correct. `reads`: whether the attacker reads what the server sends. `receive_bytes`:
    size of its kernel's receive buffer; 0 for the default of megabytes. `wire`: TLS layer, if it uses TLS."""

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
