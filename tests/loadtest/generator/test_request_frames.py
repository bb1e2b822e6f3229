"""What is sent, read back by hpack and the generated code."""

from typing import Any

import pytest
from hpack import Decoder

from ghostless.contract import http2_frames as frames
from ghostless.v1 import prediction_pb2 as pb
from loadtest.generator import request_frames


def _split(wire: bytes) -> list[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame."""
    found, at = [], 0
    while at < len(wire):
        high, low, kind, flags, stream = frames.parse_header(wire, at)
        length = high << 8 | low
        at += frames.FRAME_HEADER
        found.append((kind, flags, stream, wire[at : at + length]))
        at += length
    return found


@pytest.mark.parametrize("rows", [1, 256, 9000])
def test_a_filled_request_is_the_message_with_its_id_on_its_stream(rows: int) -> None:
    request = pb.PredictRequest(model="demo")
    request.candidates["video_id"].int64s.values.extend(range(100_000, 100_000 + rows))
    blocks = request_frames.header_blocks("example:80", 0.25, {"x-tenant": "blue"})
    prepared = request_frames.PreparedFrames(blocks, [request.SerializeToString()])
    decoder = Decoder()
    for stream, first in ((1, True), (3, False), (5, False)):
        request_id = f"id-{stream:09d}".encode()
        wire = bytes(prepared.of(0, first).fill(stream, request_id))
        headers, *data = _split(wire)
        assert headers[:3] == (frames.HEADERS, frames.END_HEADERS, stream)
        told: dict[Any, Any] = dict(decoder.decode(headers[3]))  # text, though hpack declares bytes
        assert told[":path"] == "/ghostless.v1.PredictionService/Predict"
        assert told["grpc-timeout"] == "250m"
        assert told["x-tenant"] == "blue"
        assert all(kind == frames.DATA and number == stream and len(part) <= 16384 for kind, _, number, part in data)
        assert [flags for _, flags, _, _ in data] == [0] * (len(data) - 1) + [frames.END_STREAM]
        body = b"".join(part for *_, part in data)
        assert (body[0], int.from_bytes(body[1:5])) == (0, len(body) - 5)
        expected = pb.PredictRequest()
        expected.CopyFrom(request)
        expected.request_id = request_id.decode()
        assert pb.PredictRequest.FromString(body[5:]) == expected
        assert prepared.largest == len(body)
