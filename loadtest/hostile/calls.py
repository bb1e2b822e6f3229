"""Attacks within calls, by malformed messages. Each call is answered with an error or reset; the connection may stay
open."""

import gzip
import zlib
from collections.abc import Callable
from functools import cache

from ghostless.contract import http2_frames as f
from ghostless.v1 import prediction_pb2 as pb
from loadtest.hostile.attacks import CALM, Attack, Kind, Pieces, Target, ends
from loadtest.hostile.wire import call, field, head, headers, streams

_BOMB = bytes(40 << 20)
_LINES = 'x\n2026-01-01 ERROR forged\r\n{"level": "error"}\n\x1b[31m'
_LABEL = 'demo",version="9"} 1\nghostless_requests_total{method="Predict'


def _calls(body: Callable[[Target], bytes], more: bytes = b"", path: str = "") -> Callable[[Target], Pieces]:
    made = cache(body)

    def pieces(target: Target) -> Pieces:
        block, message = head(path or target.path, more), made(target)
        numbers = streams()
        per_piece = max(1, (1 << 17) // len(message))
        while True:
            yield b"".join(call(next(numbers), block, message) for _ in range(min(64, per_piece)))

    return pieces


def _compressed(data: bytes) -> bytes:
    return f.MESSAGE_PREFIX.pack(1, len(data)) + data


def _prefixed(length: int, body: bytes) -> bytes:
    return f.MESSAGE_PREFIX.pack(0, length) + body


def _nested(target: Target) -> bytes:
    """Protobuf groups nested 10,000 deep: a recursive parser runs out of stack."""
    return f.message(b"\x0b" * 10_000)


def _forged(target: Target) -> bytes:
    return f.message(pb.PredictRequest(model=_LABEL, request_id=_LINES).SerializeToString())


def _attack(name: str, known_as: str, pieces: Callable[[Target], Pieces], *expected: str) -> Attack:
    return Attack(name, known_as, pieces, ends(*expected) | CALM, Kind.CALLS)


def _malformed_path(target: Target) -> Pieces:
    block = head("/x\ny 200 OK")
    for number in streams():
        yield headers(number, block, f.END_HEADERS | f.END_STREAM)


CALLS = (
    _attack(
        "gzip bomb",
        "CWE-409",
        _calls(lambda target: _compressed(gzip.compress(_BOMB)), field(b"grpc-encoding", b"gzip")),
        "status 8",
    ),
    _attack(
        "deflate bomb",
        "CWE-409",
        _calls(lambda target: _compressed(zlib.compress(_BOMB)), field(b"grpc-encoding", b"deflate")),
        "status 8",
    ),
    _attack(
        "compressed data that breaks off",
        "CWE-409",
        _calls(lambda target: _compressed(gzip.compress(bytes(1000))[:-9]), field(b"grpc-encoding", b"gzip")),
        "status 3",
    ),
    _attack("a length of 4 GB", "CWE-130", _calls(lambda target: _prefixed((1 << 32) - 1, b"x")), "status 8"),
    _attack("a length longer than the message", "CWE-130", _calls(lambda target: _prefixed(100, b"x")), "status 3"),
    _attack("a length shorter than the message", "CWE-130", _calls(lambda target: _prefixed(1, b"xyz")), "status 3"),
    _attack("malformed protobuf", "CVE-2022-1941", _calls(lambda target: f.message(b"\xff" * 200)), "status 3"),
    _attack("deeply nested protobuf", "CVE-2025-4565", _calls(_nested), "status 3"),
    _attack("forged lines and labels in a request", "CWE-117", _calls(_forged), "status 5"),
    _attack("forged lines in a path", "CWE-117", _malformed_path, "reset 1"),
    _attack(
        "methods that don't exist",
        "CWE-117",
        _calls(lambda target: f.message(b""), path="/made.Up/Method"),
        "status 12",
    ),
    _attack(
        "headers over the limit",
        "CVE-2016-8740",
        _calls(lambda target: f.message(target.message), field(b"n", b"x" * 17_000)),
        "status 8",
    ),
)
