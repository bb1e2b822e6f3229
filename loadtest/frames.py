"""HTTP/2 and gRPC on the wire, as far as a generator of unary calls needs them (RFC 9113).

Requests are encoded before the clock starts; sending one fills in its stream's number and its request id.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ghostless.v1 import prediction_pb2 as pb
from hpack import Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
METHOD = f"/{pb.DESCRIPTOR.services_by_name['PredictionService'].full_name}/Predict"

# Kinds of frames.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
# Flags.
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
# Settings.
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5

LARGEST_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = (1 << 16) - 1
# Every server takes frames up to this size; larger bodies are cut.
_BODY_FRAME = 1 << 14
# What this client takes in one frame, so that an answer is not cut into pieces.
_ANSWER_FRAME = 1 << 20

FRAME_HEADER = 9
# High and low part of the length, kind, flags, stream.
parse_header = struct.Struct(">HBBBI").unpack_from
put_stream = struct.Struct(">I").pack_into
_STREAM_AT = 5
GRPC_PREFIX = 5

REQUEST_ID_BYTES = 12
# Tag and length; fields may come in any order, so the id stands first, where its place is known.
_REQUEST_ID_FIELD = bytes([pb.PredictRequest.REQUEST_ID_FIELD_NUMBER << 3 | 2, REQUEST_ID_BYTES])

CANCEL = struct.pack(">I", 8)
# RST_STREAM's REFUSED_STREAM, CANCEL and ENHANCE_YOUR_CALM as gRPC codes; all others are INTERNAL.
RESET_CODES = {7: 14, 8: 1, 11: 8}
DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, UNKNOWN = 4, 13, 14, 2


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return struct.pack(">HBBBI", size >> 8, size & 0xFF, kind, flags, stream) + payload


def opening() -> bytes:
    """What a client sends first: windows so large that they never need to be opened again soon, and a header table of
    size 0, so that equal header blocks mean equal headers and need decoding once."""
    settings = {
        HEADER_TABLE_SIZE: 0,
        ENABLE_PUSH: 0,
        INITIAL_WINDOW_SIZE: LARGEST_WINDOW,
        MAX_FRAME_SIZE: _ANSWER_FRAME,
    }
    payload = b"".join(struct.pack(">HI", name, value) for name, value in settings.items())
    return PREFACE + frame(SETTINGS, 0, 0, payload) + window_update(LARGEST_WINDOW - DEFAULT_WINDOW)


def window_update(increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", increment))


@dataclass(frozen=True)
class HeaderBlocks:
    """The request headers of one connection: in full for its first request, from the server's table after."""

    first: bytes
    next: bytes


def header_blocks(address: str, deadline_s: float, metadata: Mapping[str, str]) -> HeaderBlocks:
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", METHOD),
        (":authority", address),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "ghostless-loadtest"),
        ("grpc-timeout", f"{max(1, round(deadline_s * 1000))}m"),
        *metadata.items(),
    ]
    encoder = Encoder()
    return HeaderBlocks(encoder.encode(headers), encoder.encode(headers))


@dataclass(frozen=True)
class RequestFrames:
    """One request's frames: `wire` lacks the stream's number at each of `streams_at` and the id at `id_at`."""

    wire: bytes
    streams_at: tuple[int, ...]
    id_at: int
    data_bytes: int

    def fill(self, stream: int, request_id: bytes) -> bytearray:
        wire = bytearray(self.wire)
        for position in self.streams_at:
            put_stream(wire, position, stream)
        wire[self.id_at : self.id_at + REQUEST_ID_BYTES] = request_id
        return wire


def request_frames(headers: bytes, message: bytes) -> RequestFrames:
    """`message` is a serialised PredictRequest without an id."""
    body = _REQUEST_ID_FIELD + bytes(REQUEST_ID_BYTES) + message
    body = struct.pack(">BI", 0, len(body)) + body
    wire = frame(HEADERS, END_HEADERS, 0, headers)
    streams_at = [_STREAM_AT]
    id_at = len(wire) + FRAME_HEADER + GRPC_PREFIX + len(_REQUEST_ID_FIELD)
    for start in range(0, len(body), _BODY_FRAME):
        streams_at.append(len(wire) + _STREAM_AT)
        last = start + _BODY_FRAME >= len(body)
        wire += frame(DATA, END_STREAM if last else 0, 0, body[start : start + _BODY_FRAME])
    return RequestFrames(wire, tuple(streams_at), id_at, len(body))


class PreparedFrames:
    """All requests of a load, encoded once for all connections; only a connection's first one has other headers."""

    def __init__(self, headers: HeaderBlocks, messages: Sequence[bytes]) -> None:
        self._headers = headers
        self._messages = messages
        self._frames = [request_frames(headers.next, message) for message in messages]
        self.largest = max(request.data_bytes for request in self._frames)

    def of(self, prepared: int, first: bool) -> RequestFrames:
        return request_frames(self._headers.first, self._messages[prepared]) if first else self._frames[prepared]
