"""The protocol alone: what it reports of bytes, and what it makes of answers, without a socket or a thread."""

import time

import pytest

from ghostless.contract import http2_frames as frames
from serving.http2.events import CallCancelled, RequestContinued, RequestReceived, RequestTooLarge
from serving.http2.headers import OK_TRAILERS
from serving.http2.limits import Limits
from serving.http2.protocol import ServerProtocol
from serving.http2.states import ConnectionState, StreamState
from serving.http2.stream import Stream
from tests.support.http2_judges import HOLD, Step
from tests.support.http2_peer import grpc_message, raw_frame
from tests.support.http2_rows import HEAD, NOTHING, OPENING, PING, data, headers, request, reset, settings, window

STREAMING = [(":method", "POST"), (":scheme", "http"), (":path", "/stream"), HEAD[-1]]
END = frames.END_STREAM


class Server(ServerProtocol[Stream]):
    def __init__(self, limits: Limits = Limits(1000, 1000)) -> None:  # noqa: B008  # frozen
        super().__init__(limits, {HOLD}, Stream)
        self.feed(OPENING)
        self.sent()

    def feed(self, wire: bytes) -> list[tuple[str, int]]:
        """What it reports, by name and stream."""
        seen = [(type(event).__name__, event.stream.number) for event in self.receive(memoryview(wire))]
        while self.reader.has_more:
            seen += [(type(event).__name__, event.stream.number) for event in self.receive(NOTHING)]
        return seen

    def sent(self) -> Step:
        step = Step()
        step.take(b"".join(self.take_outgoing()))
        return step


RECEIVED, CONTINUED, CANCELLED, TOO_LARGE = (
    kind.__name__ for kind in (RequestReceived, RequestContinued, CallCancelled, RequestTooLarge)
)


def test_a_request_of_one_message_is_reported_when_it_is_whole() -> None:
    server = Server()
    assert server.feed(headers(1) + data(1, 0, grpc_message(b"mess")[:3])) == []
    assert server.feed(data(1, END, grpc_message(b"mess")[3:])) == [(RECEIVED, 1)]
    assert server.streams[1].only_message(1000) == b"mess"


def test_a_stream_of_messages_is_reported_from_its_head_on() -> None:
    server = Server()
    assert server.feed(headers(1, STREAMING)) == [(RECEIVED, 1)]
    assert server.feed(data(1, 0, grpc_message(b"a") * 2) + data(1, END, b"")) == [(CONTINUED, 1), (CONTINUED, 1)]
    assert list(server.streams[1].messages(1000)) == [b"a", b"a"]
    assert server.streams[1].half_closed


def test_a_request_that_is_too_large_is_reported_once_and_the_rest_of_it_discarded() -> None:
    server = Server()
    large = grpc_message(bytes(2000))
    assert server.feed(headers(1) + data(1, 0, large[:100]) + data(1, 0, large[100:])) == [(TOO_LARGE, 1)]
    assert server.streams[1].received_bytes == 0
    assert server.feed(data(1, END, b"")) == []
    server.end(server.streams[1], OK_TRAILERS)
    assert server.sent().ended == [1]


def test_a_reset_and_the_end_of_the_connection_cancel_calls() -> None:
    server = Server()
    server.feed(request(1) + request(3) + headers(5))
    assert server.feed(reset(1)) == [(CANCELLED, 1)]
    assert [(type(event), event.stream.number) for event in server.lose()] == [(CallCancelled, 3), (CallCancelled, 5)]
    assert server.state is ConnectionState.ENDED
    assert server.feed(PING) == []


def test_a_connection_error_cancels_calls_and_says_which_was_the_last() -> None:
    server = Server()
    server.feed(request(1) + headers(3))
    assert server.feed(data(0)) == [(CANCELLED, 1), (CANCELLED, 3)]
    assert server.fault is not None
    out = b"".join(server.take_outgoing())
    assert out == frames.go_away(3, frames.PROTOCOL_ERROR, str(server.fault))


def test_a_call_that_the_server_aborts_is_reported_with_the_next_events() -> None:
    server = Server()
    server.feed(request(1))
    stream = server.streams[1]
    server.reset(stream, frames.ENHANCE_YOUR_CALM)
    assert stream.state is StreamState.RESET_BY_SERVER
    assert server.has_events
    assert [type(event) for event in server.take_events()] == [CallCancelled]
    server.answer(stream, b"too late")
    assert server.sent().resets == {1: frames.ENHANCE_YOUR_CALM}


def test_draining_takes_two_steps() -> None:
    server = Server()
    server.feed(request(1))
    server.drain()
    server.sent()
    assert server.feed(request(3) + raw_frame(frames.PING, frames.ACK, 0, b"draining")) == [(RECEIVED, 3)]
    assert server.feed(headers(5) + data(5) + headers(5)) == []
    assert server.sent().resets == {5: frames.REFUSED_STREAM}
    assert not server.is_drained
    for number in (1, 3):
        server.answer(server.streams[number], b"")
    assert server.is_drained


def test_what_is_remembered_of_closed_streams_is_bounded_and_late_frames_are_still_discarded() -> None:
    limits = Limits(1000, 1000, max_remembered_resets=10, max_remembered_gaps=5)
    server = Server(limits)
    refused = [("te", "gzip")]
    for number in range(1, 4001, 40):
        server.feed(headers(number, [*HEAD, *refused]))
    last = range(1, 4001, 40)[-10:]
    assert all(server.feed(data(number)) == [] for number in last)
    assert server.fault is None
    assert len(server._history._resets) <= 20
    assert len(server._history._gaps) == 5
    server.feed(data(1))
    assert server.fault is not None


@pytest.mark.parametrize(
    ("initial_window", "answer_bytes", "frame"),
    [
        (0, 10, settings((frames.INITIAL_WINDOW_SIZE, 1)) + settings((frames.INITIAL_WINDOW_SIZE, 0))),
        (1 << 20, 1000, window(0, 1)),
    ],
    ids=["SETTINGS", "WINDOW_UPDATE"],
)
def test_frames_for_all_streams_cost_the_same_however_many_are_held_back(
    initial_window: int, answer_bytes: int, frame: bytes
) -> None:
    """CVE-2019-9515 and its kind: a few hundred kB of such frames took seconds, for all clients."""
    server = Server(Limits(1000, 1000, budget_frames=10**6))
    server.feed(settings((frames.INITIAL_WINDOW_SIZE, initial_window)))
    server.feed(b"".join(request(number) for number in range(1, 1801, 2)))
    for stream in list(server.streams.values()):
        server.answer(stream, bytes(answer_bytes))
    assert len(server.streams) > 800
    flood = frame * (200_000 // len(frame))
    started = time.process_time()
    server.feed(flood)
    assert time.process_time() - started < 0.5
