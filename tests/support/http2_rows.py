"""Rows of the conformance table, and helpers that build their frames.

The bytes `wire` follow the preface, an empty SETTINGS and `before`, which is read and answered first. `refused` is the
first error, None if there is none. `h2` is the result of the h2 package, if it differs.
"""

import struct
from dataclasses import dataclass

from hpack import Encoder

from ghostless.contract import http2_frames as f
from tests.support.http2_judges import HOLD
from tests.support.http2_peer import PREFACE, raw_frame

PROTOCOL, FLOW, CLOSED, SIZE, REFUSED, COMPRESSION, CALM = 1, 3, 5, 6, 7, 9, 11
Refused = tuple[str, int] | None
Fields = list[tuple[str, str]]


def stream(code: int = PROTOCOL) -> Refused:
    return "stream", code


def connection(code: int = PROTOCOL) -> Refused:
    return "connection", code


@dataclass(frozen=True)
class Row:
    section: str
    rule: str
    wire: bytes
    refused: Refused
    h2: str = ""
    before: bytes = b""

    def __str__(self) -> str:
        return f"{self.section} {self.rule}"


METHOD, SCHEME, PATH, AUTHORITY = (":method", "POST"), (":scheme", "http"), (":path", HOLD), (":authority", "x")
GRPC = ("content-type", "application/grpc")
HEAD: Fields = [METHOD, SCHEME, PATH, AUTHORITY, GRPC]


def block(fields: Fields) -> bytes:
    """A header block without references to the dynamic table, so that rows can be combined in any order."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return bytes(encoder.encode(fields)).lstrip(b"\x20")


def headers(
    number: int = 1, fields: Fields = HEAD, flags: int = f.END_HEADERS, lead: bytes = b"", tail: bytes = b""
) -> bytes:
    return raw_frame(f.HEADERS, flags, number, lead + block(fields) + tail)


def request(number: int = 1, path: str = HOLD) -> bytes:
    """The frames of a complete request."""
    return headers(number, [METHOD, SCHEME, (":path", path), AUTHORITY, GRPC]) + data(number, f.END_STREAM, bytes(5))


def data(number: int = 1, flags: int = 0, payload: bytes = bytes(4)) -> bytes:
    return raw_frame(f.DATA, flags, number, payload)


def settings(*pairs: tuple[int, int]) -> bytes:
    return raw_frame(f.SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window(number: int, increment: int) -> bytes:
    return raw_frame(f.WINDOW_UPDATE, 0, number, struct.pack(">I", increment))


def reset(number: int) -> bytes:
    return raw_frame(f.RST_STREAM, 0, number, struct.pack(">I", f.CANCEL))


def priority(depends_on: int) -> bytes:
    return struct.pack(">IB", depends_on, 15)


PING = raw_frame(f.PING, 0, 0, bytes(8))
# Received to go on with what was received before.
NOTHING = memoryview(b"")
# What a client begins with.
OPENING = PREFACE + raw_frame(f.SETTINGS, 0, 0)
