"""Connections shared out among workers: evenly, only to those that are ready, and counted down as they close."""

import os
import select
import signal
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from serving.engines.batcher import BatchLimits
from serving.http2.errors import Closing
from serving.http2.limits import Limits
from serving.transport.admission import ConnectionLimits
from serving.transport.closings import ConnectionObserver
from serving.transport.connection_handoff import ConnectionHandoff
from serving.transport.router import Transport
from tests.support.echoing import ECHO
from tests.support.http2_peer import Peer
from tests.support.onnx_models import write_version
from tests.support.processes import ServeProcess, served
from tests.support.running import FakeEngine
from tests.support.scrape import metrics_url, total
from tests.support.waiting import eventually

# A kind, and a connection's number.
_MESSAGE = struct.Struct("=cI")


@pytest.fixture
def handoff() -> Iterator[ConnectionHandoff]:
    with ConnectionHandoff("127.0.0.1", 0) as handoff:
        yield handoff


def _connect(handoff: ConnectionHandoff) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", handoff.port), timeout=5)
    _handle(handoff)
    return connection


def _handle(handoff: ConnectionHandoff) -> None:
    readable, _, _ = select.select(handoff.sockets(), [], [], 0.2)
    handoff.handle(readable)


def _taken(worker: socket.socket) -> int:
    """How many connections lie in a worker's end."""
    return len(_numbers(worker))


def _numbers(worker: socket.socket) -> list[int]:
    """The same, by their numbers."""
    worker.setblocking(False)
    taken: list[int] = []
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(worker, 16, 8)
        except BlockingIOError:
            return taken
        for descriptor in descriptors:
            os.close(descriptor)
            taken.append(_MESSAGE.unpack(data)[1])
        if not data:
            return taken


def test_eight_over_two_are_four_each(handoff: ConnectionHandoff) -> None:
    with closing(handoff.open(0)) as first, closing(handoff.open(1)) as second:
        handoff.mark_ready(0)
        handoff.mark_ready(1)
        clients = [_connect(handoff) for _ in range(8)]
        assert (_taken(first), _taken(second)) == (4, 4)
        for client in clients:
            client.close()


def test_a_worker_that_is_not_ready_gets_none(handoff: ConnectionHandoff) -> None:
    with closing(handoff.open(0)) as first, closing(handoff.open(1)) as second:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", handoff.port))
        handoff.mark_ready(1)
        clients = [_connect(handoff) for _ in range(3)]
        assert (_taken(first), _taken(second)) == (0, 3)
        handoff.mark_ready(0)
        clients += [_connect(handoff) for _ in range(5)]
        assert (_taken(first), _taken(second)) == (4, 1)
        for client in clients:
            client.close()


def test_what_closed_is_counted_down(handoff: ConnectionHandoff) -> None:
    with closing(handoff.open(0)) as first, closing(handoff.open(1)) as second:
        handoff.mark_ready(0)
        handoff.mark_ready(1)
        clients = [_connect(handoff) for _ in range(4)]
        for number in _numbers(first):
            first.send(_MESSAGE.pack(b"-", number))
        _handle(handoff)
        clients += [_connect(handoff) for _ in range(2)]
        assert (_taken(first), _taken(second)) == (2, 2)
        for client in clients:
            client.close()


def test_the_limits_hold_over_all_workers_and_workers_hear_what_was_refused() -> None:
    limits = ConnectionLimits(in_all=100, per_peer=3)
    with ConnectionHandoff("127.0.0.1", 0, limits) as handoff, ExitStack() as stack:
        first, second = (stack.enter_context(closing(handoff.open(index))) for index in (0, 1))
        handoff.mark_ready(0)
        handoff.mark_ready(1)
        for _ in range(5):
            stack.enter_context(_connect(handoff))
        numbers = _numbers(first) + _numbers(second)
        assert len(numbers) == 3
        first.send(_MESSAGE.pack(b"-", numbers[0]))
        _handle(handoff)
        stack.enter_context(_connect(handoff))
        assert _taken(first) + _taken(second) == 1


def test_a_worker_counts_what_the_supervisor_refused() -> None:
    with _worker() as (transport, mine):
        counted: Counter[Closing] = Counter()
        transport._connections._closings.observer = ConnectionObserver(
            lambda reason, number: counted.update({reason: number})
        )
        mine.send(_MESSAGE.pack(b"!", 5))
        mine.send(_MESSAGE.pack(b"?", 2))
        mine.send(_MESSAGE.pack(b"#", 3))
        mine.send(_MESSAGE.pack(b"%", 4))
        expected = {Closing.TOO_MANY: 5, Closing.TOO_MANY_OF_PEER: 2, Closing.BAD_PEER: 3, Closing.TOO_FREQUENT: 4}
        eventually(lambda: counted == expected, "all counted")


def test_a_connection_that_misbehaved_is_told_from_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, _worker() as (_, mine):
        with _hand_over(mine, listener, 7) as peer:
            peer.send(b"\0\0\x08\x06\0\0\0\0\1" + bytes(8))  # PING on a stream
            assert peer.fault().error_code == 1
        assert _MESSAGE.unpack(mine.recv(10)) == (b"x", 7)


def test_a_worker_that_ended_gets_no_more_and_costs_no_cpu(handoff: ConnectionHandoff) -> None:
    with closing(handoff.open(0)) as first, closing(handoff.open(1)) as second:
        handoff.mark_ready(0)
        handoff.mark_ready(1)
        first.shutdown(socket.SHUT_RDWR)
        first.close()
        _handle(handoff)
        clients = [_connect(handoff) for _ in range(3)]
        assert _taken(second) == 3
        assert select.select(handoff.sockets(), [], [], 0.0)[0] == [], "its end would be readable for ever"
        handoff.close(0)
        with closing(handoff.open(0)) as replaced:
            handoff.mark_ready(0)
            clients += [_connect(handoff) for _ in range(3)]
            assert _taken(replaced) == 3
        for client in clients:
            client.close()


def test_what_a_dead_worker_had_not_taken_is_handed_to_another(handoff: ConnectionHandoff) -> None:
    with closing(handoff.open(0)) as first, closing(handoff.open(1)) as second:
        handoff.mark_ready(0)
        clients = [_connect(handoff) for _ in range(3)]
        handoff.mark_ready(1)
        first.close()
        handoff.close(0)
        assert _taken(second) == 3
        clients.append(_connect(handoff))
        second.close()
        handoff.close(1)
    with closing(handoff.open(1)) as replaced:
        assert _taken(replaced) == 0
        handoff.mark_ready(1)
        assert _taken(replaced) == 1, "it waited until there was a worker again"
        for client in clients:
            client.close()


def test_a_silent_worker_gets_only_what_no_other_can_take(handoff: ConnectionHandoff) -> None:
    with closing(handoff.open(0)) as first, closing(handoff.open(1)) as second:
        handoff.mark_ready(0)
        handoff.mark_ready(1)
        handoff.mark_silent(0, True)
        clients = [_connect(handoff) for _ in range(3)]
        assert (_taken(first), _taken(second)) == (0, 3)
        handoff.mark_silent(1, True)
        clients.append(_connect(handoff))
        assert (_taken(first), _taken(second)) == (1, 0)
        handoff.mark_silent(0, False)
        for client in clients:
            client.close()


def test_a_worker_that_takes_nothing_does_not_hold_up_the_others(handoff: ConnectionHandoff) -> None:
    with closing(handoff.open(0)), closing(handoff.open(1)) as second:
        handoff.mark_ready(0)
        handoff.mark_ready(1)
        stuck = handoff._workers[0].channel
        with suppress(BlockingIOError):
            while True:
                stuck.send(bytes(1 << 16))
        clients = [_connect(handoff) for _ in range(3)]
        assert _taken(second) == 3
        for client in clients:
            client.close()


def test_a_worker_that_becomes_ready_while_the_server_stops(handoff: ConnectionHandoff) -> None:
    with closing(handoff.open(0)):
        handoff.stop_accepting()
        handoff.mark_ready(0)
        handoff.stop_accepting()
        assert handoff.sockets() == [], "nothing is accepted for it"


@contextmanager
def _worker() -> Iterator[tuple[Transport, socket.socket]]:
    """A transport, and the end that connections are handed to it by."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.settimeout(5)
    transport = Transport(Limits(1 << 20, 100), FakeEngine(BatchLimits(1, 1, 1)), threads=1)
    transport.add_inline(ECHO, lambda message, call: call.answer(message))
    transport.take_from(its)
    transport.start()
    with mine, its:
        yield transport, mine
        if not transport._poller._stopped.is_set():
            transport.stop(0.0)


def _hand_over(mine: socket.socket, listener: socket.socket, number: int = 7) -> Peer:
    peer = Peer(listener.getsockname()[1])
    accepted, _ = listener.accept()
    with accepted:
        socket.send_fds(mine, [_MESSAGE.pack(b"+", number)], [accepted.fileno()])
    return peer


def test_a_worker_serves_what_it_is_handed_and_tells_of_each_end_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, _worker() as (_, mine):
        peers = [_hand_over(mine, listener, number) for number in (7, 8, 9)]
        assert all(peer.is_well(1) for peer in peers)
        for peer in peers:
            peer.socket.close()
        assert {_MESSAGE.unpack(mine.recv(10)) for _ in range(3)} == {(b"-", 7), (b"-", 8), (b"-", 9)}
        mine.settimeout(0.1)
        with pytest.raises(TimeoutError):
            mine.recv(1)


def test_a_connection_lost_on_the_way_does_not_make_a_worker_deaf() -> None:
    """Where the worker has no free descriptor, the kernel hands it the byte alone."""
    with socket.create_server(("127.0.0.1", 0)) as listener, _worker() as (_, mine):
        mine.send(_MESSAGE.pack(b"+", 3))
        assert mine.recv(10) == _MESSAGE.pack(b"-", 3), "it is counted as closed"
        with _hand_over(mine, listener) as peer:
            assert peer.is_well(1)


def test_a_worker_that_stops_takes_no_more() -> None:
    with _worker() as (transport, mine):
        transport.stop(0.0)
        assert mine.recv(1) == b"", "whoever shares connections out hears it"


def _connections(server: ServeProcess) -> dict[int, int]:
    """Of each worker, those to the server's port."""
    return {
        worker.pid: sum(
            c.status == "ESTABLISHED" and c.laddr.port == server.port for c in worker.net_connections("tcp")
        )
        for worker in psutil.Process(server.process.pid).children()
    }


def test_real_workers_share_evenly_and_a_dead_ones_clients_find_the_others(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    with served(tmp_path, "--workers", "2") as server:
        peers = [Peer(server.port) for _ in range(8)]
        for peer in peers:
            assert peer.call(1, b"", "/grpc.health.v1.Health/Check").status == "0"
        shares = _connections(server)
        assert sorted(shares.values()) == [4, 4]
        victim = next(iter(shares))
        os.kill(victim, signal.SIGKILL)
        server.wait_for("starting another")
        lost = [peer for peer in peers if _is_closed(peer)]
        assert len(lost) == 4
        again = [Peer(server.port) for _ in range(4)]
        for peer in again:
            assert peer.call(1, b"", "/grpc.health.v1.Health/Check").status == "0"
        for peer in (*peers, *again):
            peer.socket.close()
        eventually(lambda: sum(_connections(server).values()) == 0, "all closed", timeout_s=10)
        eventually(lambda: total(metrics_url(server), "ready") == 2, "two workers that are ready")
        assert server.stop() == 0
        assert "Traceback" not in server.output


def _is_closed(peer: Peer) -> bool:
    peer.socket.settimeout(0.2)
    try:
        while peer.next() is not None:
            pass
    except TimeoutError:
        return False
    return True
