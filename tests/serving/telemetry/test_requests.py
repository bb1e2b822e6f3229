"""Every call that ends is counted once, under the status that its client got, over a real socket."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as oip
from tritonclient.grpc import service_pb2_grpc

from serving.engines.batcher import BatchLimits
from tests.support.grpc_calls import raw_method
from tests.support.observed import DEMO, Observed, observed
from tests.support.running import FakeEngine, graph_inputs, predict_request
from tests.support.waiting import eventually

NO_MODEL = {"model": "", "version": "", "head": ""}
ROOMY = BatchLimits(slots=2, max_batch_rows=64, queue_rows=1000)


@pytest.fixture
def quick() -> Iterator[Observed]:
    with observed(FakeEngine(ROOMY), max_message_mb=0.1) as server:
        yield server


@pytest.fixture
def held() -> Iterator[tuple[FakeEngine, Observed]]:
    """One slot, held until the gate opens; three rows may wait."""
    engine = FakeEngine(BatchLimits(slots=1, max_batch_rows=4, queue_rows=3))
    engine.gate.clear()
    with observed(engine, slots=1, deadline_ms=0) as server:
        yield engine, server
        engine.gate.set()


def code_of(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def infer_request(rows: int, outputs: tuple[str, ...] = ()) -> oip.ModelInferRequest:
    request = oip.ModelInferRequest(model_name="demo", id="infer")
    for name, values in graph_inputs(predict_request(rows)).items():
        datatype = "INT64" if values.dtype == np.int64 else "FP32"
        request.inputs.add(name=name, datatype=datatype, shape=values.shape)
        request.raw_input_contents.append(values.tobytes())
    for name in outputs:
        request.outputs.add(name=name)
    return request


def test_answers_and_every_kind_of_refusal_are_counted(quick: Observed) -> None:
    without_column = predict_request(2)
    del without_column.candidates["duration"]
    raw = raw_method(quick.channel, "/ghostless.v1.PredictionService/Predict")
    calls: list[Callable[[], object]] = [
        *[lambda: quick.stub.Predict(predict_request(5))] * 3,
        lambda: quick.stub.Predict(without_column),
        lambda: quick.stub.Predict(predict_request(2, version=-1)),
        lambda: quick.stub.Predict(predict_request(2, model="other")),
        lambda: raw(b"\xff\xff not a message"),
    ]
    seen = Counter(code_of(call) for call in calls)
    assert seen == {"OK": 3, "INVALID_ARGUMENT": 3, "NOT_FOUND": 1}
    assert quick.requests("OK") == 3
    assert quick.requests("INVALID_ARGUMENT") == 1
    assert quick.requests("INVALID_ARGUMENT", **NO_MODEL) == 2
    assert quick.requests("NOT_FOUND", **NO_MODEL) == 1
    assert quick.value("request_seconds_count", method="Predict", **DEMO) == 4
    assert quick.value("request_rows_sum", **DEMO) == 15
    assert quick.value("rows_total", **DEMO) == 15


def test_the_open_inference_protocol_is_counted_by_its_own_name(quick: Observed) -> None:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(quick.channel)
    answer = stub.ModelInfer(infer_request(7, outputs=("mean",)))
    # What the metrics are made of is not what the client asked for.
    assert [output.name for output in answer.outputs] == ["mean"]
    assert len(answer.raw_output_contents) == 1
    assert code_of(lambda: stub.ModelInfer(oip.ModelInferRequest(model_name="demo"))) == "INVALID_ARGUMENT"
    assert quick.requests("OK", "ModelInfer") == 1
    assert quick.requests("INVALID_ARGUMENT", "ModelInfer") == 1
    assert quick.value("rows_total", **DEMO) == 7
    assert quick.value("epistemic_share_count", **DEMO) == 7


def test_a_message_too_large_is_counted_as_refused(quick: Observed) -> None:
    assert code_of(lambda: quick.stub.Predict(predict_request(20_000))) == "RESOURCE_EXHAUSTED"
    eventually(lambda: quick.requests("RESOURCE_EXHAUSTED", **NO_MODEL) == 1)
    assert quick.value("rejected_total", reason="message") == 1
    assert quick.requests("INVALID_ARGUMENT", **NO_MODEL) == 0


def test_a_full_queue_is_counted_as_refused(held: tuple[FakeEngine, Observed]) -> None:
    engine, server = held
    first = server.stub.Predict.future(predict_request(1), timeout=10)
    assert engine.started.acquire(timeout=5)
    waiting = server.stub.Predict.future(predict_request(3), timeout=10)
    eventually(lambda: engine.batcher.queued_rows == 3)
    assert code_of(lambda: server.stub.Predict(predict_request(1), timeout=10)) == "RESOURCE_EXHAUSTED"
    # Under load a call may be refused before it was read, and then its model is not known.
    refused = [server.requests("RESOURCE_EXHAUSTED", **model) for model in (DEMO, NO_MODEL)]
    assert sorted(refused) == [0, 1]
    assert server.value("rejected_total", reason="queue") == 1
    engine.gate.set()
    assert (first.result().rows, waiting.result().rows) == (1, 3)
    assert server.requests("OK") == 2


def test_who_leaves_is_cancelled_and_who_waits_too_long_expired(held: tuple[FakeEngine, Observed]) -> None:
    engine, server = held
    first = server.stub.Predict.future(predict_request(1), timeout=20)
    assert engine.started.acquire(timeout=5)
    leaving = server.stub.Predict.future(predict_request(1), timeout=20)
    eventually(lambda: engine.batcher.queued_rows == 1)
    leaving.cancel()
    eventually(lambda: server.requests("CANCELLED") == 1)
    assert server.value("cancelled_total") == 1
    assert code_of(lambda: server.stub.Predict(predict_request(1), timeout=0.2)) == "DEADLINE_EXCEEDED"
    eventually(lambda: server.requests("DEADLINE_EXCEEDED") == 1)
    assert server.value("expired_total", stage="queue") == 1
    engine.gate.set()
    assert first.result().rows == 1
    eventually(lambda: server.requests("OK") == 1)
    assert server.value("cancelled_total") == 1
    assert server.value("queue_seconds_count", **DEMO) == 1


def test_a_non_finite_output_is_counted_and_refused(quick: Observed) -> None:
    engine = quick.engine
    assert isinstance(engine, FakeEngine)
    quick.stub.Predict(predict_request(2))
    assert quick.value("non_finite_outputs_total", **DEMO) == 0
    engine.poison = float("nan")
    assert code_of(lambda: quick.stub.Predict(predict_request(2))) == "INTERNAL"
    assert quick.value("non_finite_outputs_total", **DEMO) == 1
    assert quick.requests("INTERNAL") == 1
    assert quick.value("rows_total", **DEMO) == 2


def test_times_of_the_steps_add_up_to_no_more_than_the_whole() -> None:
    """A window of 30 ms that two requests share: both wait for rows, neither for a slot."""
    limits = BatchLimits(slots=1, max_batch_rows=1000, queue_rows=1000, window_s=0.03)
    with observed(FakeEngine(limits), slots=2) as server:
        threads = [threading.Thread(target=server.stub.Predict, args=(predict_request(4),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        steps = {
            step: server.value(f"{step}_seconds_sum", **DEMO) for step in ("queue", "batch_wait", "compute", "encode")
        }
        whole = server.value("request_seconds_sum", method="Predict", **DEMO)
        assert all(server.value(f"{step}_seconds_count", **DEMO) == 2 for step in steps)
        assert sum(steps.values()) <= whole
        assert steps["batch_wait"] >= 0.03
        # Together in one run, or one after the other where the second came too late for the window.
        assert server.value("batch_rows_sum", **DEMO) in (8, 16)
