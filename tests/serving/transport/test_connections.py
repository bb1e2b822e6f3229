"""The server's farewell: calls under way finish, new ones go elsewhere, nothing that was sent is lost."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from hyperframe.frame import DataFrame, GoAwayFrame, PingFrame, RstStreamFrame, WindowUpdateFrame

from tests.support.echoing import GROW, HOLD, Echoing, echoing
from tests.support.http2_peer import Peer
from tests.support.waiting import eventually

WIDE = {4: 1 << 30}
REFUSED_STREAM = 7


@contextmanager
def _stopping(server: Echoing, grace_s: float = 5.0) -> Iterator[list[bool]]:
    """The server stops meanwhile; then whether all calls finished."""
    finished: list[bool] = []
    stopper = threading.Thread(target=lambda: finished.append(server.transport.stop(grace_s)))
    stopper.start()
    yield finished
    stopper.join(10)
    assert not stopper.is_alive()


def _farewell(peer: Peer) -> GoAwayFrame:
    """The first GOAWAY, and the PING that asks whether it was read."""
    first = peer.expect(GoAwayFrame)
    ping = peer.expect(PingFrame)
    peer.send(PingFrame(0, ping.opaque_data, flags=["ACK"]))
    return first


def test_two_steps_and_the_calls_in_flight_finish() -> None:
    with echoing() as server, Peer(server.port) as peer:
        peer.send(peer.request(1, b"before", HOLD))
        eventually(lambda: server.held, "the call")
        with _stopping(server) as finished:
            first = peer.expect(GoAwayFrame)
            assert (first.last_stream_id, first.error_code) == ((1 << 31) - 1, 0)
            ping = peer.expect(PingFrame)
            peer.send(peer.request(3, b"did not know yet", HOLD))
            peer.send(PingFrame(0, ping.opaque_data, flags=["ACK"]))
            second = peer.expect(GoAwayFrame)
            assert (second.last_stream_id, second.error_code) == (3, 0)
            eventually(lambda: len(server.held) == 2, "both calls")
            for message, call in server.held:
                call.answer(message)
            assert peer.answer(1).message == b"before"
            assert peer.answer(3).message == b"did not know yet"
            assert peer.next() is None
        assert finished == [True]


def test_what_comes_after_the_farewell_is_refused_and_costs_nobody_his_call() -> None:
    with echoing() as server, Peer(server.port) as peer:
        peer.send(peer.request(1, b"under way", HOLD))
        eventually(lambda: server.held, "the call")
        with _stopping(server) as finished:
            _farewell(peer)
            peer.expect(GoAwayFrame)
            peer.send(peer.headers(3, HOLD), WindowUpdateFrame(3, 10), DataFrame(3, b"\0\0"))
            assert peer.expect(RstStreamFrame).error_code == REFUSED_STREAM
            peer.send(DataFrame(3, b"\0\0\0", flags=["END_STREAM"]), RstStreamFrame(3, 8))
            server.held[0][1].answer(b"kept")
            assert peer.answer(1).message == b"kept"
        assert finished == [True]


def test_an_answer_on_its_way_is_whole_though_its_client_still_talks() -> None:
    """To a client that reads slowly and opens its window as it reads: to that a closed socket answers with a reset."""
    with echoing(max_message_bytes=8 << 20) as server, Peer(server.port, WIDE, receive_buffer=8192) as peer:
        peer.send(WindowUpdateFrame(0, 1 << 30), peer.request(1, b"1000000", GROW))
        connection = server.connection()
        eventually(
            lambda: connection.protocol._history.last == 1 and not connection.has_unsent, "all of it in the kernel"
        )
        with _stopping(server) as finished:
            peer.send(PingFrame(0, b"draining", flags=["ACK"]))  # as if it had read so far
            time.sleep(0.1)  # the server has nothing more to say
            peer.send(PingFrame(0, b"reading!"))
            time.sleep(0.1)  # it reads slowly
            assert len(peer.answer(1).message) == 1_000_000
        assert finished == [True]


def test_an_answer_that_the_socket_does_not_take_yet_is_waited_for() -> None:
    with echoing(max_message_bytes=32 << 20) as server, Peer(server.port, WIDE, receive_buffer=8192) as peer:
        peer.send(WindowUpdateFrame(0, 1 << 30), peer.request(1, b"16000000", GROW))
        connection = server.connection()
        eventually(
            lambda: connection.has_unsent and not connection.protocol.streams, "all given to a socket that is full"
        )
        with _stopping(server) as finished:
            time.sleep(0.8)  # it reads late: longer than a client without an open call is waited for
            assert len(peer.answer(1).message) == 16_000_000
        assert finished == [True]


def test_a_client_that_says_nothing_to_the_farewell_is_left_soon() -> None:
    with echoing() as server, Peer(server.port):
        server.connection()
        started = time.monotonic()
        assert server.transport.stop(20.0)
        assert time.monotonic() - started < 2


def test_calls_that_do_not_finish_in_time_are_cut_off() -> None:
    with echoing() as server, Peer(server.port) as peer:
        peer.send(peer.request(1, b"for ever", HOLD))
        eventually(lambda: server.held, "the call")
        assert not server.transport.stop(0.2)
        left: list[str] = []
        server.held[0][1].watch(lambda: left.append("too late"))
        server.held[0][1].answer(b"to nobody")


def _is_full(told: list[int]) -> bool:
    return len(told) == 200


def test_who_is_told_that_his_client_left_is_told_once_by_two_threads_at_once() -> None:
    with echoing(max_streams=1000) as server:
        for _ in range(10):
            with Peer(server.port) as peer:
                told: list[int] = []
                peer.send(*(peer.request(number, b"", HOLD) for number in range(1, 401, 2)))
                eventually(lambda: len(server.held) == 200, "all calls")
                for number, (_, call) in enumerate(server.held):
                    call.watch(partial(told.append, number))
                closing = threading.Thread(target=server.connection().close)
                closing.start()
                peer.send(*(RstStreamFrame(number, 8) for number in range(1, 401, 2)))
                closing.join()
                eventually(partial(_is_full, told), "all told")
                assert sorted(told) == list(range(200))
                server.held.clear()
            eventually(lambda: not server.connections(), "closed")


def test_a_stopped_server_keeps_no_socket() -> None:
    with echoing() as server, Peer(server.port), Peer(server.port):
        eventually(lambda: len(server.connections()) == 2, "two connections")
        sockets = [connection.socket for connection in server.connections()]
        server.transport.stop(0.0)
        assert [sock.fileno() for sock in sockets] == [-1, -1]
