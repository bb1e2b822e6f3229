"""Answers go out as far as the client's windows and frame size allow, and go on when they open (RFC 9113, 5.2)."""

from collections.abc import Iterator

import pytest
from hyperframe.frame import DataFrame, Frame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from tests.support.echoing import GROW, HOLD, Echoing, echoing
from tests.support.http2_peer import Peer
from tests.support.waiting import eventually

HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 4, 5
WIDE = {INITIAL_WINDOW_SIZE: 1 << 30}


@pytest.fixture(scope="module")
def server() -> Iterator[Echoing]:
    with echoing(max_message_bytes=32 << 20, max_streams=1000) as running:
        yield running


def _until_ping(peer: Peer) -> list[Frame]:
    """All that the server sends now. Twice, for calls begin after all that was read with them is."""
    came: list[Frame] = []
    for _ in range(2):
        peer.send(PingFrame(0, b"all out?"))
        while not (isinstance(frame := peer.next(), PingFrame) and "ACK" in frame.flags):
            assert frame is not None
            came.append(frame)
    return came


def _sizes(came: list[Frame], stream: int) -> int:
    return sum(len(frame.data) for frame in came if isinstance(frame, DataFrame) and frame.stream_id == stream)


@pytest.mark.parametrize("window", [0, 1, 5, 7, 1000])
def test_a_streams_window_is_kept_to_and_its_updates_go_on(server: Echoing, window: int) -> None:
    with Peer(server.port, {INITIAL_WINDOW_SIZE: window}) as peer:
        peer.send(peer.request(1, b"2000", GROW))
        left = 2005
        assert _sizes(_until_ping(peer), 1) == window
        left -= window
        while left:
            step = min(left, 333)
            peer.send(WindowUpdateFrame(1, step))
            came = _until_ping(peer)
            assert _sizes(came, 1) == step
            left -= step
        assert isinstance(came[-1], HeadersFrame)
        assert "END_STREAM" in came[-1].flags


def test_the_connections_window_is_kept_to_over_all_streams(server: Echoing) -> None:
    with Peer(server.port, WIDE) as peer:
        peer.send(*(peer.request(number, b"40000", GROW) for number in (1, 3, 5)))
        came = _until_ping(peer)
        assert sum(_sizes(came, number) for number in (1, 3, 5)) == 65_535
        peer.send(WindowUpdateFrame(0, 10))
        came = _until_ping(peer)
        assert sum(_sizes(came, number) for number in (1, 3, 5)) == 10
        peer.send(WindowUpdateFrame(0, 1 << 20))
        came = _until_ping(peer)
        ends = [frame.stream_id for frame in came if isinstance(frame, HeadersFrame) and "END_STREAM" in frame.flags]
        assert sorted(ends) == [3, 5]


def test_a_stream_without_window_does_not_hold_up_others(server: Echoing) -> None:
    with Peer(server.port, {INITIAL_WINDOW_SIZE: 100}) as peer:
        peer.send(peer.request(1, b"1000", GROW))
        assert _sizes(_until_ping(peer), 1) == 100
        assert len(peer.call(3, b"50", GROW).message) == 50
        peer.send(peer.request(5, b"1000", GROW), WindowUpdateFrame(5, 2000))
        assert _sizes(_until_ping(peer), 5) == 1005
        peer.send(WindowUpdateFrame(1, 905))
        assert _sizes(_until_ping(peer), 1) == 905


def test_the_initial_window_changes_in_mid_stream_also_to_less_than_is_used(server: Echoing) -> None:
    with Peer(server.port, {INITIAL_WINDOW_SIZE: 1000}) as peer:
        peer.send(peer.request(1, b"5000", GROW))
        assert _sizes(_until_ping(peer), 1) == 1000
        peer.send(SettingsFrame(0, {INITIAL_WINDOW_SIZE: 400}))  # 600 less than nothing
        assert _sizes(_until_ping(peer), 1) == 0
        peer.send(WindowUpdateFrame(1, 600))
        assert _sizes(_until_ping(peer), 1) == 0
        peer.send(WindowUpdateFrame(1, 5))
        assert _sizes(_until_ping(peer), 1) == 5
        peer.send(SettingsFrame(0, {INITIAL_WINDOW_SIZE: 1400}))
        assert _sizes(_until_ping(peer), 1) == 1000
        peer.send(SettingsFrame(0, {INITIAL_WINDOW_SIZE: 100_000}))
        assert _sizes(_until_ping(peer), 1) == 3000
        assert len(peer.call(3, b"60000", GROW).message) == 60_000


def test_an_initial_window_that_overflows_a_stream_is_a_fault(server: Echoing) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.request(1, b"", HOLD), WindowUpdateFrame(1, 1000))
        peer.send(SettingsFrame(0, {INITIAL_WINDOW_SIZE: (1 << 31) - 1}))
        assert peer.fault().error_code == 3


@pytest.mark.parametrize("largest", [16_384, 40_000, 1 << 20])
def test_frames_are_no_larger_than_the_client_takes(server: Echoing, largest: int) -> None:
    with Peer(server.port, {**WIDE, MAX_FRAME_SIZE: largest}, connection_window=1 << 24) as peer:
        peer.send(peer.request(1, b"1000000", GROW))
        came = _until_ping(peer)
        assert _sizes(came, 1) == 1_000_005
        assert max(len(frame.data) for frame in came if isinstance(frame, DataFrame)) == min(largest, 1_000_005)


def test_an_answer_of_many_frames(server: Echoing) -> None:
    """More pieces than the kernel takes in one call."""
    with Peer(server.port, WIDE, connection_window=1 << 30) as peer:
        assert len(peer.call(1, b"25000000", GROW).message) == 25_000_000


def test_large_requests_are_taken_on_a_connection_for_longer_than_its_window(server: Echoing) -> None:
    """It is opened again as it is used; the client here counts what it may send."""
    server.held.clear()
    with Peer(server.port) as peer:
        window = 65_535
        for number in range(1, 61, 2):
            request = peer.request(number, bytes(3 << 20), HOLD)
            window -= 3 << 20
            while window < 0:
                window += peer.expect(WindowUpdateFrame, lambda frame: frame.stream_id == 0).window_increment
            peer.send(request)
        eventually(lambda: len(server.held) == 30, "30 requests of 3 MB")
        server.held.clear()


def test_an_empty_answer_needs_no_more_window_than_its_prefix(server: Echoing) -> None:
    with Peer(server.port, {INITIAL_WINDOW_SIZE: 4}) as peer:
        peer.send(peer.request(1, b"0", GROW))
        assert _sizes(_until_ping(peer), 1) == 4
        peer.send(WindowUpdateFrame(1, 1))
        assert isinstance(_until_ping(peer)[-1], HeadersFrame)


def test_what_was_held_back_and_then_reset_is_forgotten(server: Echoing) -> None:
    """Also while the connection's window is shut, so that nothing is sent that could find them gone."""
    with Peer(server.port, WIDE) as peer:
        assert len(peer.call(1, b"65530", GROW).message) == 65_530
        connection = server.connection()
        for number in range(3, 403, 2):
            peer.send(peer.request(number, b"10", GROW))
            _until_ping(peer)
            peer.send(RstStreamFrame(number, 8))
        _until_ping(peer)
        assert not connection.protocol.streams
        assert len(connection.protocol._sender.held_back) == 0


def test_a_client_without_a_header_table(server: Echoing) -> None:
    """hpack's decoder insists on hearing that the server's table has shrunk too (RFC 7541, 4.2); nghttp2's does not."""
    with Peer(server.port) as peer:
        assert peer.call(1, b"1", GROW).message == b"\0"
        peer.send(SettingsFrame(0, {HEADER_TABLE_SIZE: 0}))
        _until_ping(peer)
        peer.decoder.max_allowed_table_size = 0
        assert peer.call(3, b"1", GROW).message == b"\0"
        assert peer.call(5, b"1", GROW).message == b"\0"
    with Peer(server.port, {HEADER_TABLE_SIZE: 100}) as peer:
        _until_ping(peer)
        peer.decoder.max_allowed_table_size = 100
        get = peer.encoder.encode([(":method", "GET"), (":scheme", "http"), (":path", "/")])
        peer.send(HeadersFrame(1, get, flags=["END_HEADERS", "END_STREAM"]))
        assert peer.answer(1).headers[":status"] == "405"
        peer.send(peer.headers(3, "/no/method", "END_STREAM"))
        assert peer.answer(3).status == "12"
