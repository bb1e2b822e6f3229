"""What a call or a connection leaves behind: nothing, and without waiting for the garbage collector."""

import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest
from hyperframe.frame import DataFrame, RstStreamFrame

from serving.engines.batcher import BatchLimits
from serving.engines.interface import Job
from serving.http2.stream import Stream
from serving.transport.connection import Connection
from serving.transport.handler_threads import HandlerContext
from serving.transport.router import InlineCall
from tests.support.echoing import ECHO, GROW, HOLD, echoing
from tests.support.grpc_calls import raw_method
from tests.support.http2_peer import Peer
from tests.support.running import FakeEngine, Running, predict_request, serving
from tests.support.waiting import eventually

PREDICT = "/ghostless.v1.PredictionService/Predict"
KINDS = (Stream, InlineCall, Job, HandlerContext, Connection)


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _alive() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, KINDS))


@pytest.fixture
def running() -> Iterator[Running]:
    with serving(FakeEngine(BatchLimits(slots=1, max_batch_rows=8, queue_rows=50)), slots=1) as running:
        yield running


def test_calls_are_freed_as_they_end(running: Running) -> None:
    before = _alive()
    good = predict_request(2).SerializeToString()
    with Peer(running.port) as peer:
        for number in range(1, 101, 2):
            assert peer.call(number, good, PREDICT).status == "0"
        assert peer.call(101, b"\xff", PREDICT).status == "3"
        assert peer.call(103, predict_request(2, model="none").SerializeToString(), PREDICT).status == "5"
        assert peer.call(105, b"", "/grpc.health.v1.Health/Check").status == "0"
        assert peer.call(107, b"", "/no/method").status == "12"
        peer.send(peer.request(109, b"", "/grpc.health.v1.Health/Watch"))
        peer.expect(DataFrame)
        peer.send(RstStreamFrame(109, 8))
        eventually(lambda: _alive() - before == {"Connection": 1}, "only the connection left")
    eventually(lambda: _alive() == before, "nothing left")


def test_calls_that_were_reset_or_cut_off_are_freed() -> None:
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=8, queue_rows=50))
    engine.gate.clear()
    before = _alive()
    with serving(engine, slots=1, deadline_ms=0) as running:
        good = predict_request(2).SerializeToString()
        with Peer(running.port) as peer:
            peer.send(peer.request(1, good, PREDICT))
            assert engine.started.acquire(timeout=5)
            peer.send(*(peer.request(number, good, PREDICT) for number in (3, 5, 7)))
            eventually(lambda: engine.batcher.queued_rows == 6, "three queued")
            peer.send(RstStreamFrame(3, 8))
            eventually(lambda: engine.batcher.queued_rows == 4, "one reset")
        eventually(lambda: engine.batcher.queued_rows == 0, "the client gone")
        engine.gate.set()
        assert running.stub.Predict(predict_request(1), timeout=5).rows == 1
        running.channel.close()
        eventually(lambda: _alive() == before, "nothing left")


def test_a_call_answered_before_anybody_watches_it_is_freed() -> None:
    """Another thread may run a job before the one that queued it has asked to hear of its client's leaving."""
    with echoing() as server, Peer(server.port) as peer:
        server.connection()
        before = _alive()
        peer.send(peer.request(1, b"quick", HOLD))
        eventually(lambda: server.held, "the call")
        _, call = server.held.pop()
        call.answer(b"done")
        call.watch(lambda: None)
        del call
        assert peer.answer(1).message == b"done"
        eventually(lambda: _alive() == before, "nothing left")


def test_a_thousand_connections_leave_no_descriptor_and_no_object() -> None:
    with echoing() as server:
        with Peer(server.port) as peer:
            peer.call(1, b"warm")
        eventually(lambda: not server.connections(), "closed")
        before, descriptors = _alive(), len(os.listdir("/proc/self/fd"))
        for number in range(1000):
            with Peer(server.port) as peer:
                if number % 4 == 0:
                    assert peer.call(1, b"x").message == b"x"
                elif number % 4 == 1:
                    peer.send(peer.request(1, b"100000", GROW))  # more than its windows take, and never read
                elif number % 4 == 2:
                    peer.send(peer.headers(1, ECHO), DataFrame(1, b"\0\0"))
                else:
                    peer.send(b"nonsense")
        eventually(lambda: not server.connections(), "all closed")
        eventually(lambda: _alive() == before, "nothing left")
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert len(server.transport._poller._ready) == 2, "its own event and the listener"


def test_answers_from_other_threads_while_calls_come_and_go() -> None:
    """Every answer arrives whole at its own call, whoever sends it and whatever is reset meanwhile."""
    with echoing(max_streams=1000) as server:
        stop = threading.Event()

        def answer() -> None:
            while not stop.is_set():
                try:
                    message, call = server.held.pop()
                except IndexError:
                    time.sleep(0.0005)  # nothing to answer yet
                    continue
                call.watch(lambda: None)
                call.answer(message * 50)

        answering = [threading.Thread(target=answer) for _ in range(4)]
        for thread in answering:
            thread.start()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                hold = raw_method(channel, HOLD)
                calls = {}
                for number in range(1500):
                    message = b"%d," % number * (number % 700)
                    calls[number] = (message, hold.future(message, timeout=20))
                    if number % 5 == 0:
                        calls.pop(number)[1].cancel()
                for message, call in calls.values():
                    assert call.result() == message * 50
            eventually(lambda: not server.connections(), "all closed")
        finally:
            stop.set()
            for thread in answering:
                thread.join()
