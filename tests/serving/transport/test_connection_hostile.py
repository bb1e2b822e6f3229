"""What clients do that mean no good, or know no better: the server stays well, small, and serves the others."""

import gzip
import socket
import time
import zlib
from collections.abc import Iterable, Iterator

import pytest
from hyperframe.frame import DataFrame, PingFrame, RstStreamFrame, WindowUpdateFrame

from serving.engines.batcher import BatchLimits
from serving.http2.protocol import ServerProtocol
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.recorder import Recorder
from tests.support.echoing import ECHO, GROW, HOLD, Echoing, echoing
from tests.support.http2_peer import Peer, grpc_message
from tests.support.running import FakeEngine, predict_request, serving
from tests.support.waiting import eventually

PREDICT = "/ghostless.v1.PredictionService/Predict"
WIDE = {4: 1 << 30}
MB = 1 << 20
FLOW_CONTROL_ERROR, ENHANCE_YOUR_CALM = 3, 11


@pytest.fixture
def server() -> Iterator[Echoing]:
    with echoing(max_message_bytes=MB, max_streams=200) as running:
        yield running


def _others_are_served(server: Echoing) -> bool:
    with Peer(server.port) as other:
        return other.is_well(1)


def _send_until_not_read(peer: Peer, pieces: Iterable[bytes]) -> None:
    """Until both kernels' buffers are full."""
    try:
        for piece in pieces:
            peer.send(piece)
    except TimeoutError:
        return
    raise AssertionError("the server took it all")


def test_who_never_reads_is_not_read_from_and_the_others_are_served() -> None:
    with (
        echoing(max_message_bytes=MB, max_streams=200, client_memory_bytes=16 * MB) as server,
        Peer(server.port, WIDE, receive_buffer=4096, connection_window=(1 << 31) - 1 - 65_535) as deaf,
    ):
        connection = server.connection()
        deaf.socket.settimeout(0.3)
        requests = (deaf.request(number, b"100000".zfill(4000), GROW) for number in range(1, 200_001, 2))
        _send_until_not_read(deaf, requests)
        unsent = connection._outgoing.unsent_bytes
        assert 8 * MB < unsent < 16 * MB, "what one turn asked for comes on top"
        assert _others_are_served(server)
        deaf.socket.settimeout(5)
        assert len(deaf.answer(1).message) == 100_000
        assert len(deaf.answer(3).message) == 100_000, "whoever reads again is served again"


@pytest.mark.parametrize("whole", [True, False])
def test_too_large_a_message_is_refused_as_soon_as_its_length_is_known(server: Echoing, whole: bool) -> None:
    with Peer(server.port) as peer:
        prefix = b"\0" + (MB + 1).to_bytes(4)
        peer.send(peer.headers(1), DataFrame(1, prefix, flags=["END_STREAM"] if whole else []))
        answer = peer.answer(1)
        assert answer.status == "8"
        assert str(MB) in answer.trailers["grpc-message"]
        if not whole:
            assert peer.expect(RstStreamFrame).error_code == 0, "the client need not send the rest"
        assert peer.is_well(3)


def test_a_message_of_just_the_limit(server: Echoing) -> None:
    with Peer(server.port, WIDE, connection_window=MB) as peer:
        assert peer.call(1, bytes(MB)).message == bytes(MB)


def test_a_message_longer_than_its_prefix_says_ends_at_the_bound(server: Echoing) -> None:
    """From a client that keeps to no window."""
    with Peer(server.port) as peer:
        peer.send(peer.headers(1), DataFrame(1, b"\0\0\0\0\x0a"))
        for _ in range(5 * 64):
            peer.send(DataFrame(1, bytes(16_384)))
        assert peer.answer(1).reset == FLOW_CONTROL_ERROR
        connection = server.connection()
        assert connection.protocol._uploads.held_bytes == 0
        assert peer.is_well(3)


def test_many_incomplete_uploads_are_bounded_and_given_back(server: Echoing) -> None:
    with Peer(server.port) as peer:
        part = [DataFrame(1, bytes(16_000)) for _ in range(60)]
        numbers = range(1, 13, 2)
        for number in numbers:
            peer.send(peer.headers(number), DataFrame(number, b"\0" + MB.to_bytes(4)))
            for frame in part:
                frame.stream_id = number
            peer.send(*part)
        connection = server.connection()
        eventually(lambda: len(connection.protocol.streams) == 4, "all but four refused")
        assert connection.protocol._uploads.held_bytes <= 4 * MB
        peer.send(*(RstStreamFrame(number, 8) for number in numbers))
        eventually(lambda: not connection.protocol.streams, "all gone")
        assert connection.protocol._uploads.held_bytes == 0
        assert peer.is_well(21)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_bomb_is_refused_without_being_blown_up(server: Echoing, encoding: str) -> None:
    bomb = (gzip.compress if encoding == "gzip" else zlib.compress)(bytes(100 * MB))
    with Peer(server.port) as peer:
        started = time.monotonic()
        frames = [DataFrame(1, piece) for piece in _pieces(grpc_message(bomb, 1))]
        frames[-1].flags.add("END_STREAM")
        peer.send(peer.headers(1, extra=[("grpc-encoding", encoding)]), *frames)
        assert peer.answer(1).status == "8"
        assert time.monotonic() - started < 1
        assert peer.is_well(3)


def _pieces(body: bytes) -> list[bytes]:
    return [body[start : start + 16_384] for start in range(0, len(body), 16_384)]


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"not compressed at all", "gzip"),
        (gzip.compress(b"breaks off" * 50)[:-12], "gzip"),
        (zlib.compress(b"breaks off")[:-1], "deflate"),
        (b"", "gzip"),
        (gzip.compress(b"unannounced"), "identity"),
    ],
    ids=["not compressed", "gzip breaks off", "deflate breaks off", "empty", "unannounced"],
)
def test_what_can_not_be_decompressed_is_the_clients_fault(server: Echoing, data: bytes, encoding: str) -> None:
    with Peer(server.port) as peer:
        peer.send(
            peer.headers(1, extra=[("grpc-encoding", encoding)]),
            DataFrame(1, grpc_message(data, 1), flags=["END_STREAM"]),
        )
        assert peer.answer(1).status == "3"


def test_an_unknown_compression_is_not_implemented(server: Echoing) -> None:
    with Peer(server.port) as peer:
        message = DataFrame(1, grpc_message(b"whatever it is", 1), flags=["END_STREAM"])
        peer.send(peer.headers(1, extra=[("grpc-encoding", "br")]), message)
        assert peer.answer(1).status == "12"


def test_a_reset_before_the_call_is_dispatched(server: Echoing) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.request(1, b"never runs", HOLD), RstStreamFrame(1, 8))
        assert peer.is_well(3)
        assert server.held == []


def test_a_reset_while_the_answer_goes_out(server: Echoing) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.request(1, b"100000", GROW))
        peer.expect(DataFrame)
        connection = server.connection()
        assert connection.protocol.streams
        peer.send(RstStreamFrame(1, 8), WindowUpdateFrame(0, 65_535))
        eventually(lambda: not connection.protocol.streams, "the stream gone")
        assert peer.is_well(3)


def test_a_rapid_reset_of_10000_streams() -> None:
    """Each is read, some are queued; none is left, and none was run after it was reset."""
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=8, queue_rows=50))
    engine.gate.clear()
    message = predict_request(1).SerializeToString()
    with serving(engine, slots=1, deadline_ms=0) as running, Peer(running.port) as peer:
        holding = running.stub.Predict.future(predict_request(1), timeout=20)
        assert engine.started.acquire(timeout=5)
        for start in range(1, 20_000, 200):
            numbers = range(start, start + 200, 2)
            peer.send(*(peer.request(number, message, PREDICT) for number in numbers))
            peer.send(*(RstStreamFrame(number, 8) for number in numbers))
        peer.send(PingFrame(0, b"all read"))
        peer.expect(PingFrame, lambda ping: "ACK" in ping.flags)
        eventually(lambda: engine.batcher.queued_rows == 0, "the queue empty")
        engine.gate.set()
        assert holding.result(timeout=5).rows == 1
        assert running.stub.Predict(predict_request(1), timeout=5).rows == 1
        assert not engine.batcher._queue
        assert len(engine.runs) == 2
        (reset,) = [c for c in running.server._transport._connections._all() if c.protocol._history.last > 19_000]
        assert not reset.protocol.streams


def test_a_reset_while_queued_frees_its_place() -> None:
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=8, queue_rows=2))
    engine.gate.clear()
    message = predict_request(2).SerializeToString()
    with serving(engine, slots=1, deadline_ms=0) as running, Peer(running.port) as peer:
        peer.send(peer.request(1, message, PREDICT))
        assert engine.started.acquire(timeout=5)
        peer.send(peer.request(3, message, PREDICT))
        eventually(lambda: engine.batcher.queued_rows == 2, "one queued")
        assert peer.call(5, message, PREDICT).status == "8"
        peer.send(RstStreamFrame(3, 8), peer.request(7, message, PREDICT))
        engine.gate.set()
        assert peer.answer(7).status == "0"


def test_a_client_that_vanishes_in_mid_upload_leaves_nothing(server: Echoing) -> None:
    with Peer(server.port) as peer:
        peer.send(peer.headers(1, ECHO), DataFrame(1, b"\0\0\0\xff\xff" + bytes(1000)))
        peer.send(peer.request(3, b"held", HOLD))
        eventually(lambda: server.held, "the call")
        connection = server.connection()
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, no farewell
    eventually(lambda: not server.connections(), "the connection gone")
    assert not connection.protocol.streams
    server.held[0][1].answer(b"to nobody")
    assert _others_are_served(server)


def test_paths_that_clients_make_up_are_not_counted_each() -> None:
    metrics = ServerMetrics()
    with echoing(max_message_bytes=1000) as server, Peer(server.port) as peer:
        server.transport._recorder = Recorder(metrics)
        for number, path, status in ((1, ECHO, "8"), (3, "/made/Up", "12"), (5, ECHO, "8")):
            peer.send(peer.headers(number, path), DataFrame(number, b"\0\xff\xff\xff\xff"))
            assert peer.answer(number).status == status
    counted = [
        s for family in metrics.registry.collect() for s in family.samples if s.name == "ghostless_requests_total"
    ]
    assert {sample.labels["method"]: sample.value for sample in counted} == {"Echo": 2.0}


def test_a_fault_of_the_servers_own_costs_one_call_or_one_connection(
    server: Echoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("on purpose")

    server.transport.add_threaded("/test.Echo/Broken", broken, is_streaming=False)
    with Peer(server.port) as peer, Peer(server.port) as other:
        peer.send(peer.request(1, b"", "/test.Echo/Broken") + peer.request(3, b"next"))
        assert peer.answer(1).status == "13"
        assert peer.answer(3).message == b"next"
        assert other.is_well(1)
        with monkeypatch.context() as patched:
            patched.setattr(ServerProtocol, "receive", broken)
            peer.send(peer.request(5, b"", HOLD), PingFrame(0, bytes(8)))
            assert peer.next() is None
        assert other.is_well(3)
