"""What every door has in common, through both of them: columns that the model does not take."""

import logging
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as oip
from tritonclient.grpc import service_pb2_grpc

from ghostless.v1 import prediction_pb2 as pb
from serving.engines.batcher import BatchLimits
from tests.support.observed import DEMO, Observed, observed
from tests.support.running import FakeEngine, graph_inputs, predict_request

LIMITS = BatchLimits(slots=2, max_batch_rows=64, queue_rows=1000)
TYPES = {"int64": "INT64", "float32": "FP32"}


def _predict(running: Observed, *extra: str) -> list[float]:
    request = predict_request(3)
    for name in extra:
        request.candidates[name].floats.values.extend([1.0, 2.0, 3.0])
    return list(running.stub.Predict(request, timeout=5).mean)


def _infer(running: Observed, *extra: str) -> list[float]:
    inputs = {**graph_inputs(predict_request(3)), **{name: np.ones(3, np.float32) for name in extra}}
    request = oip.ModelInferRequest(
        model_name="demo",
        inputs=[
            oip.ModelInferRequest.InferInputTensor(name=name, datatype=TYPES[str(values.dtype)], shape=[3])
            for name, values in inputs.items()
        ],
        raw_input_contents=[values.tobytes() for values in inputs.values()],
        outputs=[oip.ModelInferRequest.InferRequestedOutputTensor(name="mean")],
    )
    answer: Any = service_pb2_grpc.GRPCInferenceServiceStub(running.channel).ModelInfer(request, timeout=5)
    mean: list[float] = np.frombuffer(answer.raw_output_contents[0], np.float32).tolist()
    return mean


DOORS = pytest.mark.parametrize(("ask", "kind"), [(_predict, "candidate feature"), (_infer, "input")])
Ask = Callable[..., list[float]]


@DOORS
def test_columns_that_the_model_does_not_take_are_ignored_counted_and_warned_about_once(
    ask: Ask, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with observed(FakeEngine(LIMITS)) as running, caplog.at_level(logging.WARNING, "serving.dataplane.pipeline"):
        expected = ask(running)
        assert running.value("unknown_features_total", **DEMO) == 0
        assert ask(running, "colour", "size") == expected
        assert ask(running, "shape") == expected
        assert running.value("unknown_features_total", **DEMO) == 3
    (warning,) = caplog.messages
    assert f"ignored unknown {kind} 'colour', {kind} 'size'; demo version 1 has user_id (context)" in warning


@DOORS
def test_they_are_refused_where_the_server_is_told_so(ask: Ask, kind: str) -> None:
    with observed(FakeEngine(LIMITS), unknown_features="refuse") as running:
        assert ask(running)
        with pytest.raises(grpc.RpcError) as refused:
            ask(running, "colour")
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert f"unknown {kind} 'colour'; model 'demo' version 1 has user_id (context)" in str(refused.value.details())
        assert running.value("unknown_features_total", **DEMO) == 0


def test_a_context_feature_that_came_as_a_candidates_column_is_still_missing() -> None:
    with observed(FakeEngine(LIMITS)) as running:
        request = predict_request(3)
        request.candidates["hour"].floats.values.extend([1.0, 2.0, 3.0])
        assert running.stub.Predict(request, timeout=5).rows == 3
        del request.context["hour"]
        with pytest.raises(grpc.RpcError, match="it was sent in `candidates`, send it in `context`"):
            running.stub.Predict(request, timeout=5)


def test_a_server_that_nobody_observes_answers_all_the_same() -> None:
    with observed(FakeEngine(LIMITS), metrics_port=0) as running:
        assert len(_predict(running)) == 3
        assert len(_infer(running)) == 3
        with pytest.raises(grpc.RpcError, match="no model 'nope'"):
            running.stub.Predict(pb.PredictRequest(model="nope"), timeout=5)
