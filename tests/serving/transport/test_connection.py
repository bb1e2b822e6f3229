"""What a client may send, and what ends its connection (RFC 9113, sections 4 to 6)."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from ghostless.contract import http2_frames as frames
from tests.support.echoing import HOLD, Echoing, echoing
from tests.support.http2_peer import Peer, grpc_message, raw_frame
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[Echoing]:
    with echoing(max_message_bytes=100_000, max_streams=5) as running:
        yield running


@pytest.fixture
def peer(server: Echoing) -> Iterator[Peer]:
    with Peer(server.port) as peer:
        yield peer
    server.held.clear()


def test_it_begins_with_its_settings_and_acknowledges_the_clients(peer: Peer) -> None:
    first = peer.next()
    assert isinstance(first, SettingsFrame)
    assert first.settings[SettingsFrame.MAX_CONCURRENT_STREAMS] == 5
    assert first.settings[SettingsFrame.INITIAL_WINDOW_SIZE] >= 100_000 + 5
    peer.expect(SettingsFrame, lambda frame: "ACK" in frame.flags)


def test_a_call_cut_at_every_byte(peer: Peer) -> None:
    peer.send(*(peer.request(1, b"whole"),))
    assert peer.answer(1).message == b"whole"
    for byte in peer.request(3, b"one byte at a time"):
        peer.socket.send(bytes((byte,)))
    assert peer.answer(3).message == b"one byte at a time"


def test_padding_priority_and_continuation(peer: Peer) -> None:
    block = peer.head()
    body = grpc_message(b"padded")
    peer.send(
        HeadersFrame(
            1, block[:3], pad_length=9, depends_on=0, stream_weight=7, exclusive=True, flags=["PADDED", "PRIORITY"]
        ),
        ContinuationFrame(1, block[3:8]),
        ContinuationFrame(1, b""),
        ContinuationFrame(1, block[8:], flags=["END_HEADERS"]),
        DataFrame(1, body[:2], pad_length=200, flags=["PADDED"]),
        DataFrame(1, b"", pad_length=0, flags=["PADDED"]),
        DataFrame(1, body[2:], pad_length=1, flags=["PADDED", "END_STREAM"]),
    )
    assert peer.answer(1).message == b"padded"


def test_what_says_nothing_is_passed_over(peer: Peer) -> None:
    peer.send(
        raw_frame(0x2, 0, 1, struct.pack(">IB", 3, 16)),  # PRIORITY, of a stream not opened yet
        raw_frame(0x77, 0xFF, 9, b"unknown"),
        raw_frame(frames.SETTINGS, 0, 0, struct.pack(">HIHI", 0xABCD, 5, 8, 1)),
        raw_frame(frames.SETTINGS, frames.ACK, 0),
        PingFrame(0, b"elsewhen", flags=["ACK"]),
    )
    assert peer.is_well(1)


def test_a_trailing_header_block_ends_the_request(peer: Peer) -> None:
    peer.send(peer.headers(1), DataFrame(1, grpc_message(b"then trailers")))
    peer.send(HeadersFrame(1, peer.encoder.encode([("x", "y")]), flags=["END_HEADERS", "END_STREAM"]))
    assert peer.answer(1).message == b"then trailers"


@pytest.mark.parametrize(
    "body", [b"", b"\0\0\0", grpc_message(b"one") * 2, grpc_message(b"short")[:-1], b"\0\0\0\0\1ab"]
)
def test_a_request_that_is_not_one_message_fails_alone(peer: Peer, body: bytes) -> None:
    peer.send(peer.headers(1), DataFrame(1, body, flags=["END_STREAM"]))
    assert peer.answer(1).status == "3"
    peer.send(peer.headers(3, "/test.Echo/Echo", "END_STREAM"))
    assert peer.answer(3).status == "3"
    assert peer.is_well(5)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(":method", "GET"), (":scheme", "http"), (":path", "/")], "405"),
        ([(":method", "CONNECT"), (":authority", "elsewhere:1")], "405"),
        ([(":method", "POST"), (":scheme", "http"), (":path", "/"), ("content-type", "text/html")], "415"),
        ([(":method", "POST"), (":scheme", "http"), (":path", "/")], "415"),
    ],
)
def test_what_is_no_grpc_is_answered_in_http(peer: Peer, fields: list[tuple[str, str]], status: str) -> None:
    peer.send(
        HeadersFrame(1, peer.encoder.encode(fields), flags=["END_HEADERS"]), DataFrame(1, b"body", flags=["END_STREAM"])
    )
    assert peer.answer(1).headers[":status"] == status
    assert peer.is_well(3)


def test_an_unknown_method_is_told_to_a_client_that_has_more_to_send(peer: Peer) -> None:
    """As those do that ask for a newer reflection service first, and wait for the answer."""
    peer.send(peer.headers(1, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"))
    assert peer.answer(1).status == "12"
    peer.send(DataFrame(1, b"sent before it heard"))
    assert peer.is_well(3)


def test_an_unknown_method(peer: Peer) -> None:
    assert peer.call(1, b"", "/no/é").status == "12"


def test_a_ping_comes_back(peer: Peer) -> None:
    peer.send(PingFrame(0, b"\0\1\2\3\4\5\6\7"))
    assert peer.expect(PingFrame).opaque_data == b"\0\1\2\3\4\5\6\7"


PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR, COMPRESSION_ERROR = 1, 3, 5, 6, 9
_PING = PingFrame(0, bytes(8)).serialize()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (raw_frame(frames.HEADERS, 0, 1) + _PING, PROTOCOL_ERROR),
        (raw_frame(frames.CONTINUATION, 4, 1), PROTOCOL_ERROR),
        (raw_frame(frames.HEADERS, 4, 1, b"\xff\xff\xff"), COMPRESSION_ERROR),
        (raw_frame(frames.HEADERS, 4, 2, b"\x82"), PROTOCOL_ERROR),
        (raw_frame(frames.HEADERS, 4, 0, b"\x82"), PROTOCOL_ERROR),
        (raw_frame(frames.DATA, 0, 0, b"x"), PROTOCOL_ERROR),
        (raw_frame(frames.DATA, 0, 9, b"x"), PROTOCOL_ERROR),
        (raw_frame(frames.RST_STREAM, 0, 9, bytes(4)), PROTOCOL_ERROR),
        (raw_frame(frames.RST_STREAM, 0, 0, bytes(4)), PROTOCOL_ERROR),
        (raw_frame(frames.WINDOW_UPDATE, 0, 9, b"\0\0\0\1"), PROTOCOL_ERROR),
        (raw_frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)), PROTOCOL_ERROR),
        (raw_frame(frames.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), FLOW_CONTROL_ERROR),
        (raw_frame(frames.WINDOW_UPDATE, 0, 0, b"\0\0\1"), FRAME_SIZE_ERROR),
        (raw_frame(frames.PING, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
        (raw_frame(frames.SETTINGS, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
        (raw_frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)), FLOW_CONTROL_ERROR),
        (raw_frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 5, 16_383)), PROTOCOL_ERROR),
        (raw_frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 5, 1 << 24)), PROTOCOL_ERROR),
        (raw_frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), PROTOCOL_ERROR),
        (b"\xff" * 9, FRAME_SIZE_ERROR),
    ],
    ids=lambda value: value[:20].hex() if isinstance(value, bytes) else str(value),
)
def test_a_connection_error_ends_the_connection_and_its_calls(
    server: Echoing, peer: Peer, wrong: bytes, code: int
) -> None:
    with Peer(server.port) as other:
        other.send(other.request(1, b"of another client", HOLD))
        eventually(lambda: len(server.held) == 1, "the other's call")
        peer.send(wrong)
        assert peer.fault().error_code == code
        server.held[0][1].answer(b"not disturbed")
        assert other.answer(1).message == b"not disturbed"


def test_more_after_the_end_of_a_request_resets_its_stream(peer: Peer) -> None:
    peer.send(peer.request(1, b"whole", HOLD), DataFrame(1, b"more"))
    assert peer.answer(1).reset == STREAM_CLOSED
    assert peer.is_well(3)


def test_a_second_head_with_an_end_does_not_run_the_call_twice(server: Echoing, peer: Peer) -> None:
    peer.send(peer.request(1, b"once", HOLD))
    eventually(lambda: server.held, "the call")
    peer.send(HeadersFrame(1, peer.encoder.encode([("x", "y")]), flags=["END_HEADERS", "END_STREAM"]))
    assert peer.answer(1).reset == STREAM_CLOSED
    assert len(server.held) == 1
    assert peer.is_well(3)


def test_data_for_a_call_that_has_ended_is_passed_over(peer: Peer) -> None:
    """A client that has not yet heard of the end goes on sending."""
    peer.send(peer.headers(1, "/no/method"))
    assert peer.answer(1).status == "12"
    trailers = HeadersFrame(1, peer.encoder.encode([("x", "y")]), flags=["END_HEADERS", "END_STREAM"])
    peer.send(DataFrame(1, b"late"), WindowUpdateFrame(1, 10), trailers, RstStreamFrame(1, 8))
    assert peer.is_well(3)


def test_a_stream_window_that_grows_too_large_resets_the_stream(server: Echoing, peer: Peer) -> None:
    peer.send(peer.request(1, b"", HOLD), WindowUpdateFrame(1, (1 << 31) - 1))
    assert peer.answer(1).reset == FLOW_CONTROL_ERROR
    assert peer.is_well(3)


def test_streams_above_the_limit_are_refused_and_the_others_served(server: Echoing, peer: Peer) -> None:
    peer.send(*(peer.request(number, b"%d" % number, HOLD) for number in range(1, 12, 2)))
    assert peer.answer(11).reset == frames.REFUSED_STREAM
    eventually(lambda: len(server.held) == 5, "five calls")
    for message, call in server.held:
        call.answer(message)
    assert peer.answer(9).message == b"9"
    assert peer.is_well(13)


def test_a_client_that_goes_away_gets_its_answers(server: Echoing, peer: Peer) -> None:
    peer.send(peer.request(1, b"last", HOLD), GoAwayFrame(0, 0))
    eventually(lambda: server.held, "the call")
    server.held[0][1].answer(b"wish")
    assert peer.answer(1).message == b"wish"


def test_http1_is_told_and_let_go(server: Echoing) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""
        while piece := plain.recv(4096):
            received += piece
    assert received.startswith(b"HTTP/1.1 505 ")
    assert b"gRPC" in received


def test_a_connection_that_says_nothing_costs_the_others_nothing(server: Echoing, peer: Peer) -> None:
    with (
        socket.create_connection(("127.0.0.1", server.port)) as silent,
        socket.create_connection(("127.0.0.1", server.port)) as slow,
    ):
        slow.sendall(b"PRI * HT")
        started = time.monotonic()
        assert peer.is_well(1)
        assert time.monotonic() - started < 1
        silent.close()
