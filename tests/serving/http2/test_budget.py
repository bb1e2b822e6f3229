"""What a client may send that carries no message, counted against what its calls give back: one row per frame."""

from dataclasses import dataclass

import pytest
from hpack import Encoder

from ghostless.contract import http2_frames as f
from serving.http2.budget import Budget
from serving.http2.errors import Closing, ConnectionFault
from serving.http2.limits import Limits
from serving.http2.protocol import ServerProtocol
from serving.http2.stream import Stream
from tests.support.http2_judges import HOLD
from tests.support.http2_peer import raw_frame
from tests.support.http2_rows import (
    HEAD,
    NOTHING,
    OPENING,
    PING,
    data,
    headers,
    priority,
    request,
    reset,
    settings,
    window,
)

LIMITS = Limits(1 << 20, 1000)
OPEN = headers()
TRAILERS = headers(1, [("x", "y")], f.END_HEADERS | f.END_STREAM)
EMPTY_CALL = headers(1, HEAD, f.END_HEADERS | f.END_STREAM)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def _server(clock: Clock | None = None) -> ServerProtocol[Stream]:
    server = ServerProtocol(LIMITS, {HOLD}, Stream, clock=clock or Clock())
    server.receive(memoryview(OPENING))
    return server


def _feed(server: ServerProtocol[Stream], wire: bytes) -> None:
    server.receive(memoryview(wire))
    while server.reader.has_more:
        server.receive(NOTHING)


@pytest.mark.parametrize(
    ("wire", "before", "spent"),
    [
        (PING, b"", 1),
        (raw_frame(f.PING, f.ACK, 0, bytes(8)), b"", 1),
        (settings(), b"", 1),
        (raw_frame(f.SETTINGS, f.ACK, 0), b"", 1),
        (window(0, 1), b"", 1),
        (window(1, 1), OPEN, 1),
        (window(1, 0), OPEN, 1 + 2),
        (raw_frame(f.PRIORITY_FRAME, 0, 1, priority(3)), b"", 1),
        (raw_frame(f.GOAWAY, 0, 0, bytes(8)), b"", 1),
        (raw_frame(0x77, 0, 0), b"", 1),
        (raw_frame(0x77, 0, 0, bytes(100_000)), b"", 1 + 195),
        (reset(1), OPEN, 1),
        (OPEN + reset(1), b"", 1),
        (headers(flags=0) + 3 * raw_frame(f.CONTINUATION, 0, 1), b"", 3),
        (data(1, 0, b""), OPEN, 1),
        (data(1, 0, b"x"), OPEN, 1),
        (data(1, f.PADDED, b"\xff" + bytes(256)), OPEN, 1),
        (data(1, 0, bytes(256)), OPEN, 0),
        (data(1, f.END_STREAM, b"x"), OPEN, 0),
        (OPEN, b"", 0),
        (request(), b"", 0),
        (TRAILERS, OPEN + data(1, 0, bytes(500)), 1),
        (EMPTY_CALL, b"", 9),
        (headers(1, [*HEAD, ("te", "x")]), b"", 2),
        (headers(1, [*HEAD, ("x", "a" * 4000)]), b"", 9),
        (headers(1, HEAD[:-1]), b"", 2),
    ],
    ids=lambda value: value[:14].hex() if isinstance(value, bytes) else str(value),
)
def test_what_a_frame_spends(wire: bytes, before: bytes, spent: int) -> None:
    server = _server()
    _feed(server, before)
    left = server._budget.left
    _feed(server, wire)
    assert left - server._budget.left == spent
    assert server.fault is None


def test_a_finished_call_gives_back_and_never_more_than_there_was() -> None:
    server = _server()
    _feed(server, 100 * PING)
    left = server._budget.left
    for number in (1, 3):
        _feed(server, request(number))
        server.answer(server.streams[number], b"")
    assert server._budget.left == left + 2 * LIMITS.refill_frames
    for number in range(5, 1005, 2):
        _feed(server, request(number))
        server.answer(server.streams[number], b"")
    assert server._budget.left <= LIMITS.budget_frames + LIMITS.refill_frames


def test_an_answer_in_pieces_gives_back_what_opening_its_windows_takes() -> None:
    """A client with HTTP/2's own windows, 64 kB, that opens them again for every 32 kB."""
    server = _server()
    for number in range(1, 201, 2):
        _feed(server, request(number))
        server.answer(server.streams[number], bytes(400_000))
        while number in server.streams:
            server.take_outgoing()
            _feed(server, window(0, 32_768) + window(number, 32_768))
    assert server.fault is None
    assert server._budget.left > LIMITS.budget_frames - 50


def test_five_control_frames_for_every_call_are_never_too_many() -> None:
    server = _server()
    for number in range(1, 10_001, 2):
        _feed(server, request(number) + 2 * PING + 2 * window(0, 1) + settings())
        server.answer(server.streams[number], bytes(10))
        server.take_outgoing()
    assert server.fault is None


def test_time_gives_back_a_little() -> None:
    clock = Clock()
    server = _server(clock)
    for _ in range(40):
        clock.now += 10  # keepalive, and an hour without a call
        _feed(server, 40 * PING)
    assert server.fault is None
    _feed(server, 1500 * PING)
    fault = server.fault
    assert fault is not None
    assert (fault.code, fault.reason) == (f.ENHANCE_YOUR_CALM, Closing.FLOOD)


def test_a_budget_is_spent_to_its_last_frame() -> None:
    budget = Budget(LIMITS, Clock())
    budget.spend(LIMITS.budget_frames)
    with pytest.raises(ConnectionFault):
        budget.spend(1)


def test_a_bad_message_costs_its_client() -> None:
    server = _server()
    for number in range(1, 61, 2):
        _feed(server, headers(number) + data(number, f.END_STREAM, b"\0\0\0\0\x09x"))
        if server.fault is not None:
            break
        stream = server.streams[number]
        with pytest.raises(Exception, match="incomplete"):
            stream.only_message(1000)
        server.end(stream, b"")
    assert number < 61
    _feed(server, PING)
    assert server.fault is not None


def test_faulty_calls_are_limited_by_their_rate_alone() -> None:
    clock = Clock()
    budget = Budget(LIMITS, clock)
    for _ in range(10):
        for _ in range(LIMITS.faulty_calls_per_s):
            budget.count_faulty_call()
        budget.spend(0)
        clock.now += 1.0
    for _ in range(LIMITS.faulty_calls_per_s + 1):
        budget.count_faulty_call()
    with pytest.raises(ConnectionFault) as calm:
        budget.spend(0)
    assert calm.value.code == f.ENHANCE_YOUR_CALM


def test_a_turn_ends_after_its_work_and_goes_on_where_it_ended() -> None:
    server = _server()
    events = server.receive(memoryview(b"".join(request(number) for number in range(1, 2001, 2))))
    # A call is two frames, and as much again for its headers, which have to be decoded.
    per_turn = LIMITS.turn_work // 4
    assert len(events) == per_turn
    turns = 1
    while server.reader.has_more:
        events += server.receive(NOTHING)
        turns += 1
    assert [event.stream.number for event in events] == list(range(1, 2001, 2))
    assert turns == 1000 // per_turn + 1


def test_large_blocks_take_more_of_a_turn() -> None:
    server = _server()
    calls = [request(number, HOLD) for number in (1, 3, 5, 7)]
    large = [headers(number, [*HEAD, ("n", str(number) * 3000)]) for number in (9, 11, 13, 15, 17)]
    server.receive(memoryview(b"".join(calls + large)))
    assert max(server.streams) < 17
    assert server.reader.has_more


def test_many_fields_take_more_of_a_turn_and_of_the_budget_however_few_bytes_they_are() -> None:
    """A byte can refer to a field of the table: 480 fields take 1.5 ms to decode."""
    server = _server()
    server.receive(memoryview(headers(1, [*HEAD, ("n", "")])))
    block = Encoder().encode([*HEAD, ("n", "")]) + b"\xbe" * 480
    before = server._budget.left
    server.receive(memoryview(b"".join(f.frame(f.HEADERS, f.END_HEADERS, number, block) for number in (3, 5, 7, 9))))
    assert max(server.streams) == 3
    assert server.reader.has_more
    assert before - server._budget.left >= 30


def test_a_compressed_message_ends_its_turn() -> None:
    server = _server()
    server.receive(memoryview(b"".join(headers(number, [*HEAD, ("grpc-encoding", "gzip")]) for number in (1, 3, 5))))
    assert list(server.streams) == [1]
    assert server.reader.has_more
