"""Every attack of the table against the real transport: it ends as the table says, others are served meanwhile, and
nothing of it stays."""

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hyperframe.frame import GoAwayFrame, PingFrame

from loadtest.hostile.attacker import Assault
from loadtest.hostile.attacks import Attack, Target
from loadtest.hostile.calls import CALLS
from loadtest.hostile.floods import FLOODS
from loadtest.hostile.stalls import STALLS
from loadtest.hostile.table import ATTACKS
from loadtest.hostile.tls_attacks import TLS_ATTACKS
from loadtest.hostile.tls_wire import careless_context
from serving.engines.batcher import BatchLimits
from serving.http2.errors import Closing
from serving.security.certificates import read_certificate
from serving.security.tls_files import TlsFiles
from serving.transport.admission import ConnectionLimits
from serving.transport.router import InlineCall
from serving.transport.tls import HTTP2, TransportTls
from tests.support.certificates import make_certificates
from tests.support.echoing import GROW, HOLD, Echoing, echoing
from tests.support.http2_peer import Peer
from tests.support.running import FakeEngine, Running, predict_request, serving
from tests.support.waiting import eventually

PREDICT = "/ghostless.v1.PredictionService/Predict"
MB = 1 << 20
# Deadlines that a test can wait for.
SHORT: dict[str, Any] = {"preface_s": 0.2, "header_s": 0.3, "body_s": 0.3, "unread_s": 0.3, "idle_s": 0.5}
SHORT |= {"leave_idle_s": 0.3, "linger_s": 0.2}
BOUND_S = 10.0
# They take the server a few tenths of a second.
MANY_CALLS = 12_000

# By attack, what the server counts its end as; FLOOD where it is not here.
REASONS = {
    "CONTINUATION without end": Closing.HEADERS,
    "indexed fields that decode to 64 MB": Closing.HEADERS,
    "HTTP/1.1": Closing.NOT_HTTP2,
    "silence": Closing.PREFACE_DEADLINE,
    "half a preface": Closing.PREFACE_DEADLINE,
    "slow header block": Closing.HEADER_DEADLINE,
    "slow frame": Closing.HEADER_DEADLINE,
    "large bodies that never end": Closing.MEMORY,
    "answers that are not read": Closing.UNREAD,
    "idle": Closing.IDLE,
    "hanging close": Closing.PROTOCOL,
}
TLS_REASONS = {
    "TLS handshakes": Closing.TOO_FREQUENT,
    "half TLS handshakes": Closing.TOO_FREQUENT,
    "what is no TLS": Closing.HANDSHAKE,
    "PING in TLS records of one byte": Closing.FLOOD,
    "TLS key updates": Closing.FLOOD,
}


def _ended(attack: Attack, target: Target, port: int) -> Counter[str]:
    """How the attacker's only connection and its calls ended."""
    until = time.monotonic() + BOUND_S
    assault = Assault(attack, target, ("127.0.0.1", port))
    return assault.connect_once(lambda: time.monotonic() < until).ended


def _check_nothing_is_left(server: Echoing, attack: Attack) -> None:
    """The attacker's connection is gone, for the right reason, and the memory that it took is free."""
    eventually(lambda: not server.connections(), "all connections gone")
    assert server.closed[REASONS.get(attack.name, Closing.FLOOD)] == 1, server.closed
    eventually(lambda: server.transport._connections._memory.held_bytes == 0, "memory free")


@pytest.mark.parametrize("attack", FLOODS, ids=str)
def test_a_flood_is_closed_and_others_are_served(attack: Attack) -> None:
    with echoing(max_message_bytes=16 * MB, max_streams=1000, linger_s=0.2) as server:
        with Peer(server.port) as other:
            assert other.is_well(1)
            ended = _ended(attack, Target(HOLD, bytes(100)), server.port)
            assert attack.ends & set(ended), ended
            assert other.is_well(3)
        _check_nothing_is_left(server, attack)


@pytest.mark.parametrize("attack", STALLS, ids=str)
def test_a_client_that_only_waits_is_closed_and_others_are_served(attack: Attack) -> None:
    settings = {**SHORT, "client_memory_bytes": 24 * MB}
    # What is held back, or not read, has to be there.
    target = Target(GROW, b"100000")
    with echoing(max_message_bytes=16 * MB, max_streams=1000, **settings) as server:
        ended = _ended(attack, target, server.port)
        assert attack.ends & set(ended), ended
        with Peer(server.port) as other:
            assert other.is_well(1)
        _check_nothing_is_left(server, attack)


@pytest.fixture(scope="module")
def predicting() -> Iterator[Running]:
    with serving(FakeEngine(BatchLimits(slots=1, max_batch_rows=64, queue_rows=1000)), slots=1) as running:
        yield running


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TransportTls:
    files = TlsFiles(make_certificates(tmp_path_factory.mktemp("certificates")).paths(), (HTTP2,))
    return TransportTls(files.context, 1.0, lambda result: None, read_certificate)


@pytest.mark.parametrize("attack", TLS_ATTACKS, ids=str)
def test_an_attack_on_tls_is_closed_and_others_are_served(attack: Attack, tls: TransportTls) -> None:
    limits = ConnectionLimits(per_peer=64)
    with echoing(tls=tls, connections=limits, linger_s=0.2) as server:
        until = time.monotonic() + BOUND_S
        assault = Assault(attack, Target(HOLD, b""), ("127.0.0.1", server.port))
        ended: Counter[str] = Counter()
        reason = TLS_REASONS.get(attack.name, Closing.HANDSHAKE_DEADLINE)
        while not (attack.ends & set(ended) and server.closed[reason]) and time.monotonic() < until:
            ended += assault.connect_once(lambda: time.monotonic() < until).ended
        assert attack.ends & set(ended), ended
        assert server.closed[reason], server.closed
        with Peer(server.port, tls=careless_context()) as other:
            assert other.is_well(1)
        eventually(lambda: not server.connections(), "all connections gone")


def test_a_client_whose_calls_all_fail_is_closed(predicting: Running) -> None:
    """Answered, as long as they are not sent as fast as possible."""
    attack = ATTACKS["methods that don't exist"]
    message = predict_request(1).SerializeToString()
    ended = _ended(attack, Target(PREDICT, message), predicting.port)
    assert ended["goaway 11"] == 1, ended
    assert ended["status 12"] > 3000, ended


@pytest.mark.parametrize("attack", CALLS, ids=str)
def test_bad_calls_are_answered_and_good_ones_served(attack: Attack, predicting: Running) -> None:
    message = predict_request(1).SerializeToString()
    assault = Assault(attack, Target(PREDICT, message), ("127.0.0.1", predicting.port))
    next(attack.pieces(assault.target))  # made before the clock starts
    until = time.monotonic() + 0.3
    ended = assault.connect_once(lambda: time.monotonic() < until).ended
    assert ended, "something was answered"
    assert attack.ends >= set(ended), ended
    assert predicting.stub.Predict(predict_request(1), timeout=5).rows == 1


def test_each_attack_has_one_row_with_the_name_of_its_class() -> None:
    assert len(ATTACKS) == len(FLOODS) + len(STALLS) + len(CALLS) + len(TLS_ATTACKS) + 1
    assert all(attack.known_as.startswith(("CVE-", "CWE-")) for attack in ATTACKS.values())


def test_connections_are_counted_in_all_and_by_address() -> None:
    with echoing(connections=ConnectionLimits(in_all=6, per_peer=4)) as server, ExitStack() as stack:

        def connect(source: str) -> socket.socket:
            address = ("127.0.0.1", server.port)
            sock = stack.enter_context(socket.create_connection(address, timeout=5, source_address=(source, 0)))
            sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))
            return sock

        def is_closed(sock: socket.socket) -> bool:
            try:
                return sock.recv(1) == b""
            except ConnectionResetError:
                return True

        many = [connect("127.0.0.2") for _ in range(5)]
        assert [is_closed(sock) for sock in many] == [False] * 4 + [True]
        others = [connect("127.0.0.3") for _ in range(3)]
        assert [is_closed(sock) for sock in others] == [False, False, True]
        assert server.closed == {Closing.TOO_MANY_OF_PEER: 1, Closing.TOO_MANY: 1}
        many[0].close()
        eventually(lambda: len(server.connections()) == 5, "one gone")
        assert not is_closed(connect("127.0.0.2")), "its place is free again"


def test_an_old_connection_is_told_to_leave_and_its_calls_finish() -> None:
    with echoing(age_s=0.3) as server, Peer(server.port) as peer:
        peer.send(peer.request(1, b"under way", HOLD))
        eventually(lambda: server.held, "the call")
        first = peer.expect(GoAwayFrame)
        assert (first.last_stream_id, first.error_code, first.additional_data) == ((1 << 31) - 1, 0, b"age")
        peer.send(PingFrame(0, peer.expect(PingFrame).opaque_data, flags=["ACK"]))
        assert peer.expect(GoAwayFrame).last_stream_id == 1
        server.held[0][1].answer(b"finished")
        assert peer.answer(1).message == b"finished"
        assert peer.next() is None
        peer.socket.close()
        eventually(lambda: server.closed[Closing.AGE] == 1, "closed by age")


def test_a_client_that_does_not_leave_is_closed() -> None:
    with echoing(age_s=0.1, leave_s=0.2) as server, Peer(server.port) as peer:
        peer.send(peer.request(1, b"for ever", HOLD))
        assert [peer.expect(GoAwayFrame).error_code for _ in range(2)] == [0, 0]
        assert peer.next() is None
        eventually(lambda: server.closed[Closing.AGE] == 1, "closed by age")


def test_a_turn_is_bounded_and_others_get_theirs() -> None:
    """A client has far more to do than a turn, all of it legal; another's call is handled before it is done."""
    held: list[int] = []
    with echoing(max_streams=100_000) as server, Peer(server.port) as busy, Peer(server.port) as other:

        def look(message: bytes, call: InlineCall) -> None:
            held.append(len(server.held))
            call.answer(message)

        server.transport.add_inline("/test.Echo/Look", look)
        assert other.is_well(1)
        calls = b"".join(busy.request(number, b"x", HOLD) for number in range(1, 2 * MANY_CALLS, 2))
        busy.send(calls)
        assert other.call(3, b"in between", "/test.Echo/Look").message == b"in between"
        assert held[0] < MANY_CALLS
        eventually(lambda: len(server.held) == MANY_CALLS, "all of them")


def test_headers_over_the_limit_cost_their_call_only() -> None:
    with echoing() as server, Peer(server.port) as peer:
        peer.send(peer.headers(1, "/x", extra=[("n", "x" * 17_000)]))
        answer = peer.answer(1)
        assert (answer.status, "16384" in answer.trailers["grpc-message"]) == ("8", True)
        assert peer.is_well(3)


def test_a_long_name_of_a_method_is_not_sent_back_as_a_whole() -> None:
    """It would be three times as long, and be kept among the trailers that were sent last."""
    with echoing() as server, Peer(server.port) as peer:
        peer.send(peer.headers(1, "/" + "x y" * 2500, "END_STREAM"))
        answer = peer.answer(1)
        assert answer.status == "12"
        assert len((answer.trailers or answer.headers)["grpc-message"]) < 4000
        assert peer.is_well(3)


def test_reasons_are_logged_a_few_times_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with echoing() as server:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port)) as sock:
                sock.sendall(b"forged\nline\x1b[31m" * 9)
                while sock.recv(1000):
                    """Until the end."""
        eventually(lambda: server.closed[Closing.NOT_HTTP2] == 20, "all closed")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "not_http2" in lines[0]
    assert "forged" not in lines[0]
