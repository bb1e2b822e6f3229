"""Requests encoded as HTTP/2 frames.

Requests are encoded before the measurement starts; sending one only fills in its stream id and its request id.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpack import Encoder

from ghostless.contract import http2_frames as frames
from ghostless.v1 import prediction_pb2 as pb

METHOD = f"/{pb.DESCRIPTOR.services_by_name['PredictionService'].full_name}/Predict"

# Maximum frame size that this client accepts, so that a response is not split.
_ANSWER_FRAME = 1 << 20
_STREAM_AT = 5
put_stream = struct.Struct(">I").pack_into

REQUEST_ID_BYTES = 12
# Tag and length. Fields may come in any order, so the id comes first, where its position is known.
_REQUEST_ID_FIELD = bytes([pb.PredictRequest.REQUEST_ID_FIELD_NUMBER << 3 | 2, REQUEST_ID_BYTES])

# gRPC status for codes of RST_STREAM; INTERNAL for all others.
RESET_CODES = {frames.REFUSED_STREAM: 14, frames.CANCEL: 1, frames.ENHANCE_YOUR_CALM: 8}
DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, UNKNOWN = 4, 13, 14, 2


def opening() -> bytes:
    """The first bytes that a client sends. They announce large windows, which rarely need to be reopened, and a header
    table of size 0: equal header blocks then mean equal headers and need to be decoded only once."""
    settings = frames.settings(
        {
            frames.HEADER_TABLE_SIZE: 0,
            frames.ENABLE_PUSH: 0,
            frames.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW,
            frames.MAX_FRAME_SIZE: _ANSWER_FRAME,
        }
    )
    return frames.PREFACE + settings + frames.window_update(frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW)


@dataclass(frozen=True)
class HeaderBlocks:
    """Encoded request headers: in full for a connection's first request, then as references to the server's table."""

    first: bytes
    next: bytes


def header_blocks(address: str, deadline_s: float, metadata: Mapping[str, str], scheme: str = "http") -> HeaderBlocks:
    headers = [
        (":method", "POST"),
        (":scheme", scheme),
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
    """The frames of one request. The stream id must be filled in at each of `streams_at`, the request id at `id_at`."""

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
    """Encode `message`, a serialised PredictRequest without an id."""
    body = _REQUEST_ID_FIELD + bytes(REQUEST_ID_BYTES) + message
    body = frames.message(body)
    wire = frames.frame(frames.HEADERS, frames.END_HEADERS, 0, headers)
    streams_at = [_STREAM_AT]
    id_at = len(wire) + frames.FRAME_HEADER + frames.MESSAGE_PREFIX.size + len(_REQUEST_ID_FIELD)
    for start in range(0, len(body), frames.DEFAULT_FRAME):
        streams_at.append(len(wire) + _STREAM_AT)
        last = start + frames.DEFAULT_FRAME >= len(body)
        flags = frames.END_STREAM if last else 0
        wire += frames.frame(frames.DATA, flags, 0, body[start : start + frames.DEFAULT_FRAME])
    return RequestFrames(wire, tuple(streams_at), id_at, len(body))


class PreparedFrames:
    """All requests of a load, encoded once for all connections. Only the first request of a connection has other
    headers."""

    def __init__(self, headers: HeaderBlocks, messages: Sequence[bytes]) -> None:
        self._headers = headers
        self._messages = messages
        self._frames = [request_frames(headers.next, message) for message in messages]
        self.largest = max(request.data_bytes for request in self._frames)

    def of(self, prepared: int, first: bool) -> RequestFrames:
        return request_frames(self._headers.first, self._messages[prepared]) if first else self._frames[prepared]
