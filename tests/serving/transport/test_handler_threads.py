"""Methods off the hot path: served on few threads, whatever clients do with them."""

import threading
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hyperframe.frame import DataFrame, PingFrame, RstStreamFrame

from ghostless.v1 import prediction_pb2 as pb
from serving.engines.batcher import BatchLimits
from serving.transport.handler_threads import HandlerThreads
from tests.support.echoing import echoing
from tests.support.http2_peer import Peer, grpc_message
from tests.support.running import FakeEngine, Running, predict_request, serving
from tests.support.waiting import eventually

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
PREDICT = "/ghostless.v1.PredictionService/Predict"
LIST = reflection_pb2.ServerReflectionRequest(list_services="")
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def running() -> Iterator[Running]:
    with serving(FakeEngine(BatchLimits(slots=1, max_batch_rows=8, queue_rows=50)), slots=1) as running:
        yield running


def _check(running: Running) -> int:
    return int(health_pb2_grpc.HealthStub(running.channel).Check(health_pb2.HealthCheckRequest(), timeout=5).status)


def test_a_watch_hears_of_changes_keeps_no_thread_and_ends_with_the_server(running: Running) -> None:
    stub = health_pb2_grpc.HealthStub(running.channel)
    watches = []
    for _ in range(30):
        watches.append(stub.Watch(health_pb2.HealthCheckRequest()))
        assert next(watches[-1]).status == SERVING
    eventually(lambda: running.server._handler_threads._busy == 0, "no thread kept")
    watches.pop().cancel()
    running.server._health.set("", NOT_SERVING)
    assert [next(watch).status for watch in watches] == [NOT_SERVING] * 29
    running.server.stop()
    for watch in watches:
        with pytest.raises(grpc.RpcError) as ended:
            list(watch)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


def test_watches_whose_clients_left_are_forgotten(running: Running) -> None:
    watchers = running.server._health._send_response_callbacks
    with Peer(running.port) as peer:
        for number in range(1, 401, 2):
            # The reset is read with the call or after it, so that it comes before, while or after the watch begins.
            peer.send(peer.request(number, b"", WATCH))
            if number % 3:
                peer.send(PingFrame(0, bytes(8)))
                peer.expect(PingFrame)
            peer.send(RstStreamFrame(number, 8))
    eventually(lambda: not watchers.get("") and running.server._handler_threads._busy == 0, "no watcher left")
    assert not running.server._handler_threads._endless


def test_a_watch_that_begins_after_its_client_left_is_forgotten(running: Running) -> None:
    held, go = threading.Event(), threading.Event()
    servicer = running.server._health

    def hold() -> None:
        with servicer._lock:
            held.set()
            go.wait(5)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(5)
    with Peer(running.port) as peer:
        peer.send(peer.request(1, b"", WATCH))
        eventually(lambda: running.server._handler_threads._busy == 1, "the watch waiting to begin")
        peer.send(RstStreamFrame(1, 8), PingFrame(0, bytes(8)))
        peer.expect(PingFrame)
        go.set()
        eventually(lambda: running.server._handler_threads._busy == 0, "the watch begun")
    holder.join()
    assert not servicer._send_response_callbacks[""]


def test_reflection_answers_each_message_as_it_comes(running: Running) -> None:
    asked = iter([LIST, LIST])
    turns = threading.Semaphore(1)

    def requests() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        for request in asked:
            assert turns.acquire(timeout=5)
            yield request

    answers = reflection_pb2_grpc.ServerReflectionStub(running.channel).ServerReflectionInfo(requests(), timeout=10)
    first = next(answers)
    turns.release()
    assert first == next(answers)
    assert list(answers) == []


def test_streams_left_open_leave_threads_for_the_others(running: Running) -> None:
    """Else eight of them would make every health check fail."""
    with Peer(running.port) as peer:
        peer.send(*(peer.headers(number, REFLECT) for number in range(1, 41, 2)))
        peer.send(PingFrame(0, bytes(8)))
        peer.expect(PingFrame, lambda ping: "ACK" in ping.flags)
        assert _check(running) == SERVING
        assert running.stub.ListModels(pb.ListModelsRequest(), timeout=5).default_model == "demo"
    eventually(lambda: running.server._handler_threads._busy == 0, "their threads free again")


def test_a_stream_left_open_keeps_no_thread_after_the_end(running: Running) -> None:
    """A thread that waits for ever would keep the process from ending."""
    with Peer(running.port) as peer:
        peer.send(peer.headers(1, REFLECT))
        eventually(lambda: running.server._handler_threads._busy == 1, "its thread")
        running.server.stop()
        eventually(lambda: running.server._handler_threads._busy == 0, "its thread free again")


def test_who_asks_and_never_opens_his_window_is_ended(running: Running) -> None:
    """His answers would fill the memory."""
    asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="ghostless.v1.Model")
    request = grpc_message(asked.SerializeToString())
    with Peer(running.port, {4: 0}) as peer:
        peer.send(peer.headers(1, REFLECT))
        eventually(lambda: running.server._handler_threads._endless, "the call")
        (context,) = running.server._handler_threads._endless
        stream = context._stream
        body = request * 200
        for _ in range(500):
            peer.send(DataFrame(1, body))
            if stream.ended:
                break
        eventually(lambda: stream.ended, "the call ended", timeout_s=10)
        assert peer.answer(1).reset is not None
        eventually(lambda: running.server._handler_threads._busy == 0, "its thread free again")
        assert _check(running) == SERVING


def test_who_sends_faster_than_he_is_served_is_ended() -> None:
    gate = threading.Event()
    taken: list[bytes] = []

    def take(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        gate.wait(10)
        taken.extend(messages)
        return b"done"

    with echoing(max_message_bytes=1 << 20) as server, Peer(server.port) as peer:
        threads = HandlerThreads(server.transport, 1 << 20, threads=4)
        handler = grpc.stream_unary_rpc_method_handler(take, bytes, bytes)
        threads.add_registered_method_handlers("test.Slow", {"Take": handler})
        peer.send(peer.headers(1, "/test.Slow/Take"), DataFrame(1, grpc_message(b"one") * 10))
        peer.send(peer.headers(3, "/test.Slow/Take"), *[DataFrame(3, grpc_message(bytes(16_000)))] * 200)
        assert peer.answer(3).reset == 11
        peer.send(DataFrame(1, grpc_message(b"last"), flags=["END_STREAM"]))
        gate.set()
        assert peer.answer(1).message == b"done"
        assert taken.count(b"one") == 10
        eventually(lambda: threads._busy == 0, "the threads free again")
        threads.stop()


def test_the_end_of_a_stream_is_not_counted_as_an_upload_under_way(running: Running) -> None:
    with Peer(running.port) as peer:
        for number in range(1, 21, 2):
            peer.send(peer.headers(number, REFLECT))
            peer.send(DataFrame(number, grpc_message(LIST.SerializeToString()), flags=["END_STREAM"]))
            assert peer.answer(number).status == "0"
        (connection,) = running.server._transport._connections._all()
        assert connection.protocol._uploads.held_bytes == 0


def test_what_comes_while_the_server_stops_is_told_so_and_holds_up_nobody() -> None:
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=8, queue_rows=50))
    engine.gate.clear()
    with serving(engine, slots=1) as running, Peer(running.port) as peer:
        peer.send(peer.request(1, predict_request(1).SerializeToString(), PREDICT))
        assert engine.started.acquire(timeout=5)
        stopper = threading.Thread(target=running.server.stop)
        stopper.start()
        eventually(lambda: running.server._handler_threads._executor._shutdown, "stopping")
        message = predict_request(1).SerializeToString()
        peer.send(peer.request(3, b"", CHECK) + peer.request(5, message, PREDICT))
        assert peer.answer(3).status == "14"
        engine.gate.set()
        assert peer.answer(5).status == "0"
        peer.send(PingFrame(0, b"draining", flags=["ACK"]))
        stopper.join(10)
        assert not stopper.is_alive()


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", "3"), (grpc_message(b"\xff\xff"), "3"), (b"\0\xff\xff\xff\xff", "8"), (grpc_message(b"", 1), "3")],
)
def test_bad_requests(running: Running, body: bytes, status: str) -> None:
    with Peer(running.port) as peer:
        for number, path in ((1, CHECK), (3, REFLECT), (5, WATCH)):
            peer.send(peer.headers(number, path), DataFrame(number, body, flags=["END_STREAM"]))
            expected = "0" if path == REFLECT and not body else status
            assert peer.answer(number).status == expected, path
        eventually(lambda: running.server._handler_threads._busy == 0, "all threads free")


def test_a_burst_waits_for_threads_and_what_is_far_too_much_is_refused(running: Running) -> None:
    health = health_pb2_grpc.HealthStub(running.channel)
    with running.server._health._lock:
        burst = [health.Check.future(health_pb2.HealthCheckRequest(), timeout=10) for _ in range(60)]
        eventually(lambda: running.server._handler_threads._busy == 60, "all taken")
        with Peer(running.port) as peer:
            peer.send(*(peer.request(number, b"", CHECK) for number in range(1, 41, 2)))
            assert peer.answer(39).status == "8"
    assert all(call.result().status == SERVING for call in burst)
    eventually(lambda: running.server._handler_threads._busy == 0, "all threads free")
    assert _check(running) == SERVING
