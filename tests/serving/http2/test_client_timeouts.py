"""When a client takes too long: every phase, with a clock of its own."""

from dataclasses import dataclass

import pytest

from ghostless.contract import http2_frames as f
from serving.http2.client_timeouts import ClientTimeouts
from serving.http2.errors import Closing
from serving.http2.limits import Limits
from serving.http2.protocol import ServerProtocol
from serving.http2.stream import Stream
from tests.support.http2_judges import HOLD, Step
from tests.support.http2_peer import PREFACE, raw_frame
from tests.support.http2_rows import HEAD, NOTHING, OPENING, PING, data, headers, request, settings

LIMITS = Limits(1 << 20, 1000, idle_s=100.0, age_s=0.0)
CALM, PROTOCOL, NO_ERROR = f.ENHANCE_YOUR_CALM, f.PROTOCOL_ERROR, f.NO_ERROR


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Server(ServerProtocol[Stream]):
    def __init__(self, wire: bytes = OPENING, limits: Limits = LIMITS) -> None:
        self.clock = Clock()
        super().__init__(limits, {HOLD}, Stream, clock=self.clock)
        self.feed(wire)

    def feed(self, wire: bytes) -> None:
        self.receive(memoryview(wire))
        while self.reader.has_more:
            self.receive(NOTHING)

    def wait(self, seconds: float, every: float = 0.5) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += every
            self.check_time(self.clock.now)

    def sent(self) -> Step:
        step = Step()
        step.take(b"".join(self.take_outgoing()))
        return step


@pytest.mark.parametrize(
    ("wire", "allowed_s", "code", "reason"),
    [
        (b"", LIMITS.preface_s, PROTOCOL, Closing.PREFACE_DEADLINE),
        (PREFACE[:7], LIMITS.preface_s, PROTOCOL, Closing.PREFACE_DEADLINE),
        (PREFACE, LIMITS.preface_s, PROTOCOL, Closing.PREFACE_DEADLINE),
        (OPENING + headers(flags=0), LIMITS.header_s, CALM, Closing.HEADER_DEADLINE),
        (OPENING + headers(flags=0) + b"\0\0", LIMITS.header_s, CALM, Closing.HEADER_DEADLINE),
        (OPENING + headers()[:-1], LIMITS.header_s, CALM, Closing.HEADER_DEADLINE),
        (OPENING + PING[:5], LIMITS.header_s, CALM, Closing.HEADER_DEADLINE),
        (OPENING + request()[:-1], LIMITS.body_s, CALM, Closing.HEADER_DEADLINE),
    ],
    ids=["nothing", "half a preface", "no SETTINGS", "a block", "a block, and more", "HEADERS", "PING", "DATA"],
)
def test_what_has_begun_must_end(wire: bytes, allowed_s: float, code: int, reason: Closing) -> None:
    server = Server(wire)
    server.wait(allowed_s - 1)
    assert server.fault is None
    server.wait(3)
    assert server.fault is not None
    assert (server.fault.code, server.fault.reason) == (code, reason)
    assert server.sent().refused == ("connection", code)


def test_a_byte_now_and_then_does_not_help() -> None:
    server = Server(OPENING + headers(flags=0))
    for _ in range(int(LIMITS.header_s) + 2):
        server.feed(raw_frame(f.CONTINUATION, 0, 1, b"\0"))
        server.wait(1)
    assert server.fault is not None
    assert server.fault.reason is Closing.HEADER_DEADLINE


def test_frame_after_frame_may_go_on_for_ever() -> None:
    server = Server()
    for number in range(1, 201, 2):
        server.feed(request(number)[:-1])
        server.wait(5)
        server.feed(request(number)[-1:])
        server.answer(server.streams[number], b"")
    assert server.fault is None


def test_a_request_that_does_not_end_is_answered_and_others_go_on() -> None:
    server = Server(OPENING + headers(1) + data(1))
    server.wait(20)
    server.feed(headers(3) + data(3))
    server.sent()
    server.wait(LIMITS.body_s - 19)
    sent = server.sent()
    assert (sent.ended, list(server.streams)) == ([1], [3])
    assert server.fault is None
    server.feed(data(3, f.END_STREAM) + data(1))
    assert server.streams[3].half_closed
    assert server.fault is None, "what is still on its way is discarded"


def test_a_stream_of_messages_and_a_call_that_waits_may_take_as_long_as_they_like() -> None:
    streaming = [(":method", "POST"), (":scheme", "http"), (":path", "/stream"), HEAD[-1]]
    server = Server(OPENING + headers(1, streaming) + request(3))
    server.wait(1000)
    assert list(server.streams) == [1, 3]


def test_many_requests_that_do_not_end_cost_the_connection() -> None:
    server = Server(OPENING + b"".join(headers(number) for number in range(1, 201, 2)))
    server.wait(LIMITS.body_s + 2)
    assert server.fault is not None
    assert server.fault.reason is Closing.FLOOD


def test_an_answer_that_its_window_holds_back_is_reset() -> None:
    server = Server(OPENING + settings((f.INITIAL_WINDOW_SIZE, 0)) + request(1) + request(3))
    server.answer(server.streams[1], b"held")
    server.wait(LIMITS.unread_s - 1)
    assert list(server.streams) == [1, 3]
    server.sent()
    server.wait(3)
    assert server.sent().resets == {1: CALM}
    assert list(server.streams) == [3]
    assert server._sender.held_bytes == 0


def test_idleness() -> None:
    server = Server()
    server.wait(90)
    server.feed(request(1))
    server.wait(90)
    server.answer(server.streams[1], b"")
    server.wait(90)
    assert b"idle" not in b"".join(server.take_outgoing())
    server.wait(12)
    assert b"idle" in b"".join(server.take_outgoing())
    assert server.leaves_because is Closing.IDLE
    server.wait(LIMITS.leave_idle_s + 1)
    assert server.fault is not None
    assert (server.fault.code, server.fault.reason) == (NO_ERROR, Closing.IDLE)


def test_no_idleness_where_it_is_off() -> None:
    server = Server(limits=Limits(1000, 10, idle_s=0.0, age_s=0.0))
    server.wait(10_000, every=100)
    assert server.fault is None
    assert server.leaves_because is None


def test_ages_differ() -> None:
    limits = Limits(1000, 10, age_s=1000.0, idle_s=0.0)
    left = []
    for _ in range(50):
        timeouts = ClientTimeouts(limits, 0.0)
        left.append(next(now for now in range(0, 2000) if timeouts.check_leaving(float(now), 1, False)))
    assert 900 <= min(left) < max(left) <= 1001
