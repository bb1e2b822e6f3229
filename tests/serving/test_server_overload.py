"""Deadlines, cancellation, a full queue and draining, over a real socket with an engine that can be held back."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from ghostless.client import BusyError, Client
from ghostless.v1 import prediction_pb2 as pb
from serving.engines.batcher import BatchLimits
from serving.engines.interface import Job
from serving.errors import OverloadedError
from tests.support.grpc_calls import raw_method
from tests.support.running import FakeEngine, Running, predict_request, serving
from tests.support.waiting import eventually


@pytest.fixture
def slow() -> Iterator[tuple[FakeEngine, Running]]:
    """One slot, held until the gate opens; three rows may wait."""
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=4, queue_rows=3))
    engine.gate.clear()
    with serving(engine, slots=1, deadline_ms=0) as running:
        yield engine, running
        engine.gate.set()


def _hold_the_slot(engine: FakeEngine, running: Running) -> "grpc.Future[pb.PredictResponse]":
    call: grpc.Future[pb.PredictResponse] = running.stub.Predict.future(predict_request(1), timeout=10)
    assert engine.started.acquire(timeout=5)
    return call


def test_a_full_queue_refuses_at_once_with_a_retry_hint(slow: tuple[FakeEngine, Running]) -> None:
    engine, running = slow
    held = _hold_the_slot(engine, running)
    waiting = running.stub.Predict.future(predict_request(3), timeout=10)
    eventually(lambda: engine.batcher.queued_rows == 3)
    started = time.monotonic()
    with pytest.raises(grpc.RpcError) as refused:
        running.stub.Predict(predict_request(1), timeout=10)
    assert time.monotonic() - started < 1
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailing: Any = refused.value.trailing_metadata()
    trailers = dict(trailing)
    assert int(trailers["retry-after-ms"]) >= 1
    assert trailers["grpc-retry-pushback-ms"] == trailers["retry-after-ms"]
    engine.gate.set()
    assert held.result().rows == 1
    assert waiting.result().rows == 3


class FullEngine(FakeEngine):
    """Would have room in five seconds; it finds out before a request is read, or after."""

    def __init__(self, unread: bool) -> None:
        super().__init__(BatchLimits(slots=1, max_batch_rows=4, queue_rows=3))
        self._unread = unread

    def check_overload(self) -> OverloadedError | None:
        return OverloadedError("full", retry_after_s=5.0) if self._unread else None

    def submit(self, job: Job) -> None:
        raise OverloadedError("full", retry_after_s=5.0)


@pytest.mark.parametrize("unread", [False, True])
def test_a_retry_that_could_not_begin_before_the_deadline_is_forbidden(unread: bool) -> None:
    with serving(FullEngine(unread), slots=1) as running:
        for timeout_s, pushback in ((20.0, "5000"), (1.0, "-1")):
            with pytest.raises(grpc.RpcError) as refused:
                running.stub.Predict(predict_request(1), timeout=timeout_s)
            trailing: Any = refused.value.trailing_metadata()
            assert dict(trailing)["grpc-retry-pushback-ms"] == pushback
            assert dict(trailing)["retry-after-ms"] == "5000", "for people"
        with Client(f"127.0.0.1:{running.port}", timeout_s=1.0) as client:
            started = time.monotonic()
            with pytest.raises(BusyError):
                client.predict(context={"user_id": 1, "hour": 2.0}, candidates={"item_id": [3], "duration": [4.0]})
            assert time.monotonic() - started < 0.9, "it hears so at once"


def test_what_comes_while_the_queue_is_full_is_refused_without_being_read(slow: tuple[FakeEngine, Running]) -> None:
    engine, running = slow
    held = _hold_the_slot(engine, running)
    waiting = running.stub.Predict.future(predict_request(3), timeout=10)
    eventually(lambda: engine.batcher.queued_rows == 3)
    with pytest.raises(grpc.RpcError):
        running.stub.Predict(predict_request(1), timeout=10)
    predict = raw_method(running.channel, "/ghostless.v1.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as unseen:
        predict(b"not even a message", timeout=10)
    assert unseen.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    engine.gate.set()
    assert held.result().rows == 1
    assert waiting.result().rows == 3
    with pytest.raises(grpc.RpcError) as read:
        predict(b"not even a message", timeout=10)
    assert read.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_expired_and_cancelled_calls_never_run(slow: tuple[FakeEngine, Running]) -> None:
    engine, running = slow
    held = _hold_the_slot(engine, running)
    expired = running.stub.Predict.future(predict_request(1), timeout=0.1)
    left = running.stub.Predict.future(predict_request(2), timeout=10)
    eventually(lambda: engine.batcher.queued_rows == 3)
    left.cancel()
    assert expired.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: engine.batcher.queued_rows == 0)
    engine.gate.set()
    held.result()
    assert running.stub.Predict(predict_request(2), timeout=5).rows == 2
    assert [len(run) for run in engine.runs] == [1, 2], "only the held call and the last one ran"


def test_the_servers_own_deadline_bounds_the_wait() -> None:
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=4, queue_rows=100))
    engine.gate.clear()
    with serving(engine, slots=1, deadline_ms=50) as running:
        held = _hold_the_slot(engine, running)
        waiting = running.stub.Predict.future(predict_request(2))
        eventually(lambda: engine.batcher.queued_rows == 2)
        time.sleep(0.1)  # longer than the deadline
        engine.gate.set()
        assert held.result().rows == 1
        assert waiting.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "while the request was waiting" in waiting.details()


def test_calls_are_taken_and_health_answers_while_all_slots_run(slow: tuple[FakeEngine, Running]) -> None:
    engine, running = slow
    held = _hold_the_slot(engine, running)
    running.stub.ListModels(pb.ListModelsRequest(), timeout=2)
    with pytest.raises(grpc.RpcError) as refused:
        running.stub.Predict(predict_request(3, quantile_levels=[2.0]), timeout=2)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    engine.gate.set()
    held.result()


def test_a_non_finite_answer_is_internal_and_never_ok() -> None:
    engine = FakeEngine(BatchLimits(slots=2, max_batch_rows=4, queue_rows=100))
    with serving(engine) as running:
        engine.poison = float("nan")
        with pytest.raises(grpc.RpcError) as failed:
            running.stub.Predict(predict_request(2), timeout=5)
        assert failed.value.code() is grpc.StatusCode.INTERNAL
        assert "non-finite" in str(failed.value.details())
        engine.poison = 0.0
        assert running.stub.Predict(predict_request(2), timeout=5).rows == 2


def _code_of_an_empty_call(running: Running) -> grpc.StatusCode:
    with grpc.insecure_channel(running.address, options=[("grpc.use_local_subchannel_pool", 1)]) as late:
        return raw_method(late, "/ghostless.v1.PredictionService/Predict").future(b"", timeout=2).code()


def test_stopping_finishes_calls_in_flight_and_refuses_new_ones() -> None:
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=1, queue_rows=100))
    engine.gate.clear()
    with serving(engine, slots=1) as running:
        calls = [_hold_the_slot(engine, running), running.stub.Predict.future(predict_request(2), timeout=10)]
        eventually(lambda: engine.batcher.queued_rows == 2)
        stopping = threading.Thread(target=running.server.stop)
        stopping.start()
        refused = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        eventually(lambda: _code_of_an_empty_call(running) in refused, "the refusal of new calls")
        engine.gate.set()
        assert [call.result().rows for call in calls] == [1, 2]
        stopping.join(10)
        assert not stopping.is_alive()
