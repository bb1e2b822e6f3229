"""What a connection may hold, alone and beside others."""

from ghostless.contract import http2_frames as f
from serving.http2.limits import Limits
from serving.http2.memory import ClientMemory
from serving.http2.protocol import ServerProtocol
from serving.http2.stream import Stream
from tests.support.http2_judges import HOLD, Step
from tests.support.http2_rows import OPENING, data, headers, request, reset, settings, window

MB = 1 << 20
LIMITS = Limits(4 * MB, 1000, client_memory_bytes=8 * MB)


def _server(memory: ClientMemory, wire: bytes = b"") -> ServerProtocol[Stream]:
    server = ServerProtocol(LIMITS, {HOLD}, Stream, memory)
    server.receive(memoryview(OPENING + wire))
    return server


def test_a_connection_has_half_of_it_and_little_once_half_is_used() -> None:
    memory = ClientMemory(LIMITS)
    assert memory.has_room(4 * MB)
    assert not memory.has_room(4 * MB + 1)
    memory.held_bytes = 4 * MB + 1
    assert memory.has_room(1 << 18)
    assert not memory.has_room((1 << 18) + 1)
    assert not memory.is_full
    memory.held_bytes = 8 * MB + 1
    assert memory.is_full


def test_uploads_and_answers_are_counted_and_given_back() -> None:
    memory = ClientMemory(LIMITS)
    server = _server(memory, settings((f.INITIAL_WINDOW_SIZE, 0)))
    server.receive(memoryview(headers(1) + data(1, 0, f.MESSAGE_PREFIX.pack(0, MB) + bytes(1000)) + request(3)))
    server.answer(server.streams[3], bytes(500))
    assert memory.held_bytes == 1005 + 505
    assert server.held_bytes > memory.held_bytes, "calls themselves take memory too"
    server.receive(memoryview(reset(1)))
    assert memory.held_bytes == 505
    server.receive(memoryview(window(3, 100)))
    assert memory.held_bytes == 405
    server.lose()
    assert memory.held_bytes == 0


def test_no_more_calls_where_too_many_answers_wait() -> None:
    memory = ClientMemory(LIMITS)
    server = _server(memory, settings((f.INITIAL_WINDOW_SIZE, 0)))
    for number in (1, 3):
        server.receive(memoryview(request(number)))
        server.answer(server.streams[number], bytes(2 * MB))
    server.take_outgoing()
    server.receive(memoryview(request(7)))
    step = Step()
    wire = b"".join(server.take_outgoing())
    step.take(wire)
    assert 7 not in server.streams
    assert step.ended == [7]
    assert b"grpc-status\x018" in wire
    server.receive(memoryview(window(1, 4 * MB) + window(3, 4 * MB) + window(0, 8 * MB)))
    server.receive(memoryview(request(9)))
    assert 9 in server.streams, "whoever reads again is served again"
