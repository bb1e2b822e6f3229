"""Builds the frames of the attacks by hand, because an attacker needs no header table and no checks."""

import struct
from collections.abc import Iterator
from itertools import count

from ghostless.contract import http2_frames as f

OPENING = f.PREFACE + f.settings({})
PING = f.frame(f.PING, 0, 0, bytes(8))


def text(value: bytes) -> bytes:
    return _length(len(value), 0) + value


def huffman_a(size: int) -> bytes:
    """The letter a in Huffman code, 8 letters in 5 bytes, which a decoder reads bit by bit."""
    return _length(size, 0x80) + bytes.fromhex("18c6318c63") * (size // 5)


def _length(size: int, high_bit: int) -> bytes:
    """An integer with a 7-bit prefix (RFC 7541, section 5.1)."""
    if size < 0x7F:
        return bytes((high_bit | size,))
    out = bytearray((high_bit | 0x7F,))
    size -= 0x7F
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


def field(name: bytes, value: bytes) -> bytes:
    """A literal field that is not added to the table."""
    return b"\x00" + text(name) + text(value)


def added(name: bytes, value: bytes) -> bytes:
    """A literal field that is added to the table."""
    return b"\x40" + text(name) + text(value)


def head(path: str, more: bytes = b"") -> bytes:
    """Header block of a gRPC call; POST and http are indexes of the static table."""
    pseudo = b"\x83\x86\x04" + text(path.encode()) + b"\x01" + text(b"x")
    return pseudo + field(b"content-type", b"application/grpc") + more


def headers(number: int, block: bytes, flags: int = f.END_HEADERS) -> bytes:
    return f.frame(f.HEADERS, flags, number, block)


def data(number: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return f.frame(f.DATA, flags, number, payload)


def call(number: int, block: bytes, body: bytes) -> bytes:
    """A complete call, in frames of a size that every server accepts."""
    pieces = [body[start : start + f.DEFAULT_FRAME] for start in range(0, len(body), f.DEFAULT_FRAME)]
    last = len(pieces) - 1
    return headers(number, block) + b"".join(
        data(number, piece, f.END_STREAM if place == last else 0) for place, piece in enumerate(pieces)
    )


def streams(first: int = 1) -> Iterator[int]:
    return count(first, 2)


def settings(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame with any number of entries; a setting may occur more than once."""
    return f.frame(f.SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))
