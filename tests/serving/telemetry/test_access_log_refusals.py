"""What is refused is logged under the id that its client gave it, over a real socket."""

import json
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from serving.engines.batcher import BatchLimits
from tests.serving.telemetry.test_requests import infer_request
from tests.support.observed import observed
from tests.support.running import FakeEngine, predict_request


def test_refusals_are_logged_with_their_request_id(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    invalid = predict_request(2, request_id="no duration")
    del invalid.candidates["duration"]
    infer = infer_request(2)
    infer.model_name = "other"
    limits = BatchLimits(slots=2, max_batch_rows=64, queue_rows=1000)
    with observed(FakeEngine(limits), access_log=str(log)) as server:
        for request in (invalid, predict_request(2, model="other", request_id="no model")):
            with pytest.raises(grpc.RpcError):
                server.stub.Predict(request)
        with pytest.raises(grpc.RpcError):
            service_pb2_grpc.GRPCInferenceServiceStub(server.channel).ModelInfer(infer)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["code"], line["request_id"]) for line in lines] == [
        ("INVALID_ARGUMENT", "no duration"),
        ("NOT_FOUND", "no model"),
        ("NOT_FOUND", "infer"),
    ]
