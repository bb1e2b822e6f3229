"""Requests as the frames of a generator of unary calls.

Requests are encoded before the clock starts; sending one fills in its stream's number and its request id.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpack import Encoder

from ghostless.contract import http2_frames as frames
from ghostless.v1 import prediction_pb2 as pb

METHOD = f"/{pb.DESCRIPTOR.services_by_name['PredictionService'].full_name}/Predict"

# What this client takes in one frame, so that an answer is not cut into pieces.
_ANSWER_FRAME = 1 << 20
_STREAM_AT = 5
put_stream = struct.Struct(">I").pack_into

REQUEST_ID_BYTES = 12
# Tag and length; fields may come in any order, so the id stands first, where its place is known.
_REQUEST_ID_FIELD = bytes([pb.PredictRequest.REQUEST_ID_FIELD_NUMBER << 3 | 2, REQUEST_ID_BYTES])

# RST_STREAM's codes as gRPC's; all others are INTERNAL.
RESET_CODES = {frames.REFUSED_STREAM: 14, frames.CANCEL: 1, frames.ENHANCE_YOUR_CALM: 8}
DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, UNKNOWN = 4, 13, 14, 2


def opening() -> bytes:
    """What a client sends first: windows so large that they never need to be opened again soon, and a header table of
    size 0, so that equal header blocks mean equal headers and need decoding once."""
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
    """The request headers of one connection: in full for its first request, from the server's table after."""

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
    """All requests of a load, encoded once for all connections; only a connection's first one has other headers."""

    def __init__(self, headers: HeaderBlocks, messages: Sequence[bytes]) -> None:
        self._headers = headers
        self._messages = messages
        self._frames = [request_frames(headers.next, message) for message in messages]
        self.largest = max(request.data_bytes for request in self._frames)

    def of(self, prepared: int, first: bool) -> RequestFrames:
        return request_frames(self._headers.first, self._messages[prepared]) if first else self._frames[prepared]
