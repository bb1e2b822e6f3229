"""HTTP/2 frames (RFC 9113, sections 4 and 6): constants, encoding and parsing."""

import struct
from collections.abc import Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Kinds of frames.
DATA, HEADERS, PRIORITY_FRAME, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
# Flags.
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
# Settings.
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5
MAX_HEADER_LIST_SIZE = 6
# Error codes of RST_STREAM and GOAWAY.
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 5, 6, 7, 8, 9
ENHANCE_YOUR_CALM = 11

LARGEST_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = (1 << 16) - 1
# Every peer must accept frames up to this size.
DEFAULT_FRAME = 1 << 14
LARGEST_FRAME = (1 << 24) - 1
DEFAULT_HEADER_TABLE = 4096

FRAME_HEADER = 9
_HEADER = struct.Struct(">HBBBI")
# High and low part of the length, kind, flags, stream.
parse_header = _HEADER.unpack_from
# Name and value.
_SETTING = struct.Struct(">HI")
SETTING_BYTES = _SETTING.size
# gRPC's prefix of a message: whether it is compressed, and its length.
MESSAGE_PREFIX = struct.Struct(">BI")


def frame_header(size: int, kind: int, flags: int, stream: int) -> bytes:
    """The header of a frame whose payload is written separately."""
    return _HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return frame_header(len(payload), kind, flags, stream) + payload


def settings(values: Mapping[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in values.items()))


def parse_settings(payload: bytes | memoryview) -> list[tuple[int, int]]:
    """Names and values in the order in which they apply; a name may occur twice."""
    return list(_SETTING.iter_unpack(payload))


def window_update(increment: int, stream: int = 0) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4))


def go_away(last_stream: int, code: int, why: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last_stream, code) + why.encode())


def message(data: bytes) -> bytes:
    """An uncompressed message with gRPC's prefix."""
    return MESSAGE_PREFIX.pack(0, len(data)) + data
