"""gRPC's own client against the server: everything it can be made to do."""

import random
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from serving.engines.batcher import BatchLimits
from serving.transport.router import InlineCall
from tests.support.echoing import ECHO, GROW, HOLD, Echoing, echoing
from tests.support.grpc_calls import raw_method
from tests.support.running import FakeEngine, predict_request, serving
from tests.support.waiting import eventually

MB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Echoing]:
    with echoing(max_message_bytes=20 * MB, max_streams=1000) as running:
        yield running


def _channel(server: Echoing, **options: int) -> grpc.Channel:
    sizes = {
        "grpc.max_receive_message_length": -1,
        "grpc.max_send_message_length": -1,
        "grpc.use_local_subchannel_pool": 1,
    }
    named = {f"grpc.{name.replace('__', '.')}": value for name, value in options.items()}
    return grpc.insecure_channel(f"127.0.0.1:{server.port}", options=list({**sizes, **named}.items()))


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 65_535, MB, 20 * MB])
def test_messages_of_any_size_both_ways(server: Echoing, size: int) -> None:
    with _channel(server) as channel:
        message = bytes(range(256)) * (size // 256) + bytes(size % 256)
        assert raw_method(channel, ECHO)(message, timeout=10) == message


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests(server: Echoing, compression: grpc.Compression) -> None:
    with _channel(server) as channel:
        echo = raw_method(channel, ECHO)
        features = random.Random(0).randbytes(200_000).hex().encode() * 4
        for message in (b"", b"tiny", b"repeated " * 50_000, features):
            assert echo(message, timeout=10, compression=compression) == message
        with pytest.raises(grpc.RpcError, match="send it uncompressed"):
            echo(b"repeated " * 200_000, timeout=10, compression=compression)


def test_a_tiny_window_takes_large_answers_all_the_same(server: Echoing) -> None:
    with _channel(server, http2__lookahead_bytes=1024, http2__bdp_probe=0) as channel:
        calls = [raw_method(channel, GROW).future(b"%d" % (200_000 + n), timeout=10) for n in range(5)]
        assert [len(call.result()) for call in calls] == [200_000 + n for n in range(5)]


def test_many_calls_at_once_each_get_their_own_answer(server: Echoing) -> None:
    with _channel(server) as channel:
        messages = [b"%d " % n * (n % 300) for n in range(2000)]
        calls = [raw_method(channel, ECHO).future(message, timeout=20) for message in messages]
        assert [call.result() for call in calls] == messages


def test_many_channels_and_threads(server: Echoing) -> None:
    wrong: list[object] = []

    def ask(place: int) -> None:
        with _channel(server) as channel:
            for n in range(40):
                message = b"%d-%d" % (place, n) * 500
                if raw_method(channel, ECHO)(message, timeout=10) != message:
                    wrong.append(message)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_metadata_arrives_as_it_was_sent(server: Echoing) -> None:
    seen: list[tuple[tuple[str, str | bytes], ...]] = []

    def look(message: bytes, call: InlineCall) -> None:
        seen.append(call.metadata)
        call.answer(b"")

    server.transport.add_inline("/test.Echo/Look", look)
    sent = (("plain", "a b, c"), ("twice", "1"), ("twice", "2"), ("bytes-bin", bytes(range(256))), ("empty-bin", b""))
    with _channel(server) as channel:
        for turn in range(3):  # the client's header table settles, and then changes
            mine = (*sent, ("turn", str(turn // 2)))
            raw_method(channel, "/test.Echo/Look")(b"", timeout=5, metadata=mine)
            assert {*mine} <= {*seen[-1]}
        raw_method(channel, "/test.Echo/Look")(b"", timeout=5, metadata=(("blank", " at both ends "),))
        assert ("blank", "at both ends") in seen[-1]


def test_a_deadline_ends_the_call_on_both_sides(server: Echoing) -> None:
    server.held.clear()
    left = threading.Event()
    with _channel(server) as channel:
        call = raw_method(channel, HOLD).future(b"", timeout=0.3)
        eventually(lambda: server.held, "the call")
        assert 0 < server.held[0][1].deadline - time.time() < 0.31
        server.held[0][1].watch(left.set)
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert left.wait(2)


def test_a_cancelled_call_frees_its_place_in_the_queue() -> None:
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=4, queue_rows=4))
    engine.gate.clear()
    with serving(engine, slots=1, deadline_ms=0) as running:
        first = running.stub.Predict.future(predict_request(1), timeout=10)
        assert engine.started.acquire(timeout=5)
        second = running.stub.Predict.future(predict_request(4), timeout=10)
        eventually(lambda: engine.batcher.queued_rows == 4, "queued")
        second.cancel()
        eventually(lambda: engine.batcher.queued_rows == 0, "its place free")
        engine.gate.set()
        assert first.result().rows == 1


def test_too_large_a_request(server: Echoing) -> None:
    with _channel(server) as channel:
        call = raw_method(channel, ECHO).future(bytes(30 * MB), timeout=10)
        assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "20971520" in call.details()
        assert raw_method(channel, ECHO)(b"next", timeout=5) == b"next"


def test_errors_arrive_with_their_details(server: Echoing) -> None:
    with _channel(server) as channel:
        call = raw_method(channel, "/test.Echo/Näh").future(b"", timeout=5)
        assert call.code() is grpc.StatusCode.UNIMPLEMENTED


def test_keepalive_pings_are_answered(server: Echoing) -> None:
    options = {"keepalive_time_ms": 100, "keepalive_timeout_ms": 500, "keepalive_permit_without_calls": 1}
    with _channel(server, **options, http2__max_pings_without_data=0) as channel:
        assert raw_method(channel, ECHO)(b"1", timeout=5) == b"1"
        states: list[grpc.ChannelConnectivity] = []
        channel.subscribe(states.append)
        time.sleep(0.8)  # several pings, of which one without an answer would end the connection
        assert grpc.ChannelConnectivity.TRANSIENT_FAILURE not in states
        assert raw_method(channel, ECHO)(b"2", timeout=5) == b"2"
