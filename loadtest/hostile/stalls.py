"""Attacks that send little and wait: the resources they hold must be bounded, and they must be closed in time."""

from collections.abc import Callable

from ghostless.contract import http2_frames as f
from loadtest.hostile.attacks import CALM, Attack, Kind, Pieces, Target, ends
from loadtest.hostile.wire import OPENING, call, data, head, headers

_CALLS = 100
_BETWEEN_CALLS_S = 0.01
# Flow-control windows so wide that they never block an answer.
_WIDE = f.PREFACE + f.settings({f.INITIAL_WINDOW_SIZE: f.LARGEST_WINDOW}) + f.window_update(f.LARGEST_WINDOW - 65_535)
# GOAWAY can't reach a client that does not read.
_UNREAD = CALM | ends("closed")
_NARROW = f.PREFACE + f.settings({f.INITIAL_WINDOW_SIZE: 0})


def _nothing(target: Target) -> Pieces:
    yield from ()


def _slow_block(target: Target) -> Pieces:
    yield headers(1, head(target.path), 0)
    while True:
        yield 0.2
        yield f.frame(f.CONTINUATION, 0, 1, b"\x00")


def _slow_frame(target: Target) -> Pieces:
    """Sends one frame a byte at a time."""
    yield f.frame_header(1000, f.HEADERS, f.END_HEADERS, 1)
    while True:
        yield 0.2
        yield b"\x00"


def _slow_bodies(target: Target) -> Pieces:
    block = head(target.path)
    numbers = range(1, 2 * _CALLS, 2)
    for number in numbers:
        yield headers(number, block) + data(number, f.MESSAGE_PREFIX.pack(0, 1000))
    while True:
        yield 1.0
        yield data(1, b"x")


def _large_bodies(target: Target) -> Pieces:
    """Messages that never end, as much of them as the server accepts."""
    block = head(target.path)
    for number in range(1, 9, 2):
        yield headers(number, block) + data(number, f.MESSAGE_PREFIX.pack(0, 16 << 20))
        for _ in range(900):
            yield data(number, bytes(16_384))


def _calls(target: Target) -> Pieces:
    block, body = head(target.path), f.message(target.message)
    for number in range(1, 2 * _CALLS, 2):
        yield call(number, block, body)
        yield _BETWEEN_CALLS_S  # slowly enough that the calls are answered, not shed


def _fault(target: Target) -> Pieces:
    """Causes a connection error, after which the attacker never closes its side."""
    yield f.frame(f.PING, 0, 1, bytes(8))


def _stall(
    name: str,
    known_as: str,
    pieces: Callable[[Target], Pieces],
    expected: frozenset[str],
    opening: bytes = OPENING,
    reads: bool = True,
    receive_bytes: int = 0,
) -> Attack:
    return Attack(name, known_as, pieces, expected, Kind.STALL, opening, reads, receive_bytes)


STALLS = (
    _stall("silence", "CVE-2007-6750", _nothing, ends("goaway 1"), opening=b""),
    _stall("half a preface", "CVE-2007-6750", _nothing, ends("goaway 1"), opening=f.PREFACE[:9]),
    _stall("slow header block", "CVE-2007-6750", _slow_block, CALM),
    _stall("slow frame", "CVE-2007-6750", _slow_frame, CALM),
    _stall("slow bodies", "CVE-2007-6750", _slow_bodies, CALM),
    _stall("large bodies that never end", "CWE-770", _large_bodies, CALM),
    _stall("windows that never open", "CVE-2016-1546", _calls, CALM | ends("reset 11"), opening=_NARROW),
    _stall("answers that are not read", "CVE-2019-9517", _calls, _UNREAD, _WIDE, reads=False, receive_bytes=4096),
    _stall("idle", "CWE-400", _nothing, ends("goaway 0")),
    _stall("hanging close", "CWE-772", _fault, ends("goaway 1"), reads=False),
)
MANY = (Attack("connections", "CWE-770", _nothing, ends("closed"), Kind.MANY),)
