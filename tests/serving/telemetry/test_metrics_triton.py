"""A real Triton behind the facade: its calls are timed and counted like the embedded engine's, and so is its end."""

from pathlib import Path

import grpc
import pytest

from tests.support.observed import DEMO, observed
from tests.support.onnx_models import write_version
from tests.support.running import predict_request
from tests.support.tritons import add_triton_files, engine_on, tritons
from tests.support.waiting import eventually


def test_calls_to_triton_are_timed_and_its_state_is_told(tmp_path: Path) -> None:
    root = tmp_path / "models"
    write_version(root, 1)
    add_triton_files(root)
    with tritons(root) as (triton,), engine_on([triton]) as engine, observed(engine) as server:
        for _ in range(10):
            server.stub.Predict(predict_request(4), timeout=20)
        endpoint = triton.address
        assert server.requests("OK") == 10
        steps = ("queue", "batch_wait", "compute", "encode")
        assert [server.value(f"{step}_seconds_count", **DEMO) for step in steps] == [10] * 4
        whole = server.value("request_seconds_sum", method="Predict", **DEMO)
        assert 0 < server.value("compute_seconds_sum", **DEMO) < whole
        assert server.value("batch_rows_sum", **DEMO) == 40
        assert server.value("epistemic_share_count", **DEMO) == 40
        eventually(lambda: server.value("endpoint_up", endpoint=endpoint) == 1)
        triton.kill()
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            server.stub.Predict(predict_request(4), timeout=20)
        eventually(lambda: server.value("endpoint_up", endpoint=endpoint) == 0)
        assert server.requests("UNAVAILABLE") == 1
