"""Outcomes, logs and spans through a real server in this process."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow.parquet as pq
import pytest
from tritonclient.grpc import service_pb2 as oip
from tritonclient.grpc import service_pb2_grpc as oip_grpc

from ghostless.client import AsyncClient, Client, RejectedError
from ghostless.v1 import prediction_pb2 as pb
from learning import metrics as offline
from serving.config import ServeConfig
from serving.server import embedded_engine
from tests.support.collector import attributes, collecting
from tests.support.observed import DEMO, Observed, observed
from tests.support.onnx_models import SMALL, write_version
from tests.support.running import graph_inputs, predict_request

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_version(tmp_path / "models", 1)
    return tmp_path / "models"


@pytest.fixture
def settings() -> dict[str, object]:
    """More than the defaults, for tests that ask for it by parametrize."""
    return {}


@pytest.fixture
def running(repository: Path, settings: dict[str, object]) -> Iterator[Observed]:
    engine = embedded_engine(ServeConfig.model_validate({"repository": repository, "slots": 2}))
    try:
        with observed(engine, **settings) as server:
            yield server
    finally:
        engine.stop()


@pytest.fixture
def client(running: Observed) -> Iterator[Client]:
    with Client(running.address, timeout_s=10.0) as connected:
        yield connected


def test_coverage_online_is_coverage_offline(running: Observed, client: Client) -> None:
    random, answers, actuals = np.random.default_rng(0), [], []
    for number in range(20):
        answers.append(running.stub.Predict(predict_request(50, seed=number, request_id=f"r{number}")))
        actuals.append(random.uniform(0, 3, 50).astype(np.float32))
        report = client.record_outcomes(f"r{number}", np.arange(50), actuals[-1])
        assert (report.joined, set(report.results)) == (50, {"joined"})
    quantiles = np.concatenate([np.reshape(answer.quantiles.values, (50, -1)) for answer in answers])
    for level, share in offline.coverage(quantiles, SMALL.levels, np.concatenate(actuals)).intervals.items():
        covered = running.value("outcome_covered_rows_total", level=f"{level:g}", **DEMO)
        asked = running.value("outcome_interval_rows_total", level=f"{level:g}", **DEMO)
        assert asked == 1000
        assert covered / asked == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        {"outputs": [pb.OUTPUT_MEAN]},
        {"quantile_levels": [0.33]},
        {"top_k": 2},
        {"scoring": pb.Scoring(thompson=pb.Scoring.Thompson(seed=1)), "outputs": [pb.OUTPUT_UNCERTAINTY]},
    ],
)
def test_whatever_a_request_asks_for_its_outcomes_count_and_its_answer_is_the_same(
    running: Observed, client: Client, fields: dict[str, Any]
) -> None:
    plain = running.stub.Predict(predict_request(5, **fields))
    named = running.stub.Predict(predict_request(5, **fields, request_id="a"))
    named.request_id = ""
    assert named == plain
    assert client.record_outcomes("a", np.arange(5), np.ones(5)).joined == 5
    assert running.value("outcome_interval_rows_total", level="0.5", **DEMO) == 5


def test_a_request_without_an_id_is_not_kept(running: Observed, client: Client) -> None:
    running.stub.Predict(predict_request(5))
    assert running.value("outcome_predictions_stored") == 0
    assert client.record_outcomes("", 0, 1.0).unknown == 1


def test_requests_of_the_open_inference_protocol_are_named_by_their_id(running: Observed, client: Client) -> None:
    inputs = graph_inputs(predict_request(4))
    request = oip.ModelInferRequest(model_name="demo", id="infer-1")
    for name, values in inputs.items():
        datatype = "INT64" if values.dtype == np.int64 else "FP32"
        request.inputs.add(name=name, datatype=datatype, shape=[4])
        request.raw_input_contents.append(values.tobytes())
    oip_grpc.GRPCInferenceServiceStub(running.channel).ModelInfer(request)
    assert client.record_outcomes("infer-1", np.arange(4), np.ones(4)).joined == 4


def test_every_way_in_which_an_outcome_can_fail_to_count(running: Observed, client: Client) -> None:
    running.stub.Predict(predict_request(3, request_id="a"))
    report = client.record_outcomes(
        ["a", "a", "b", "a", "a"], np.array([0, 0, 0, 9, 1]), np.array([1.0, 1.0, 1.0, 1.0, np.nan])
    )
    assert report.results.tolist() == ["joined", "duplicate", "unknown", "invalid", "invalid"]
    assert (report.joined, report.duplicate, report.unknown, report.invalid, report.late) == (1, 1, 1, 2, 0)


@pytest.mark.parametrize("settings", [{"outcome_age_s": 0.001}])
def test_an_outcome_that_comes_too_late_is_late(running: Observed, client: Client) -> None:
    running.stub.Predict(predict_request(3, request_id="a"))
    time.sleep(0.05)  # longer than outcome_age_s
    assert client.record_outcomes("a", 0, 1.0).late == 1
    assert running.value("outcomes_total", result="late", **DEMO) == 1


def test_the_asyncio_client_tells_outcomes_too(running: Observed) -> None:
    async def tell() -> int:
        async with AsyncClient(running.address, timeout_s=10.0) as waiting:
            running.stub.Predict(predict_request(3, request_id="a"))
            return (await waiting.record_outcomes(["a", "a"], [0, 2], [0.5, 2.5])).joined

    assert asyncio.run(tell()) == 2


@pytest.mark.parametrize("settings", [{"outcome_store_mb": 0}])
def test_a_server_that_keeps_no_predictions_says_so(running: Observed, client: Client) -> None:
    with pytest.raises(RejectedError, match="does not store predictions") as refused:
        client.record_outcomes("a", 0, 1.0)
    assert refused.value.code is grpc.StatusCode.UNIMPLEMENTED


def test_calls_are_logged_with_their_timings(repository: Path, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    engine = embedded_engine(ServeConfig(repository=repository))
    with observed(engine, access_log=str(log), access_log_rate=1.0) as server:
        server.stub.Predict(predict_request(7, request_id="abc"))
        with pytest.raises(grpc.RpcError):
            server.stub.Predict(predict_request(1, model="nobody"))
    engine.stop()
    answered, refused = (json.loads(line) for line in log.read_text().splitlines())
    assert (answered["request_id"], answered["rows"], answered["code"]) == ("abc", 7, "OK")
    assert answered["seconds"].keys() == {"total", "queue", "batch_wait", "compute", "encode"}
    parts = sum(seconds for name, seconds in answered["seconds"].items() if name != "total")
    assert 0 < answered["seconds"]["compute"] <= parts <= answered["seconds"]["total"] + 1e-5
    assert (refused["code"], refused["model"]) == ("NOT_FOUND", "")
    assert "duration" not in log.read_text()


def test_a_traced_call_sends_its_spans(repository: Path) -> None:
    engine = embedded_engine(ServeConfig(repository=repository))
    with collecting() as collector:
        with observed(engine, otlp_endpoint=collector.endpoint, trace_rate=0.0) as server:
            server.stub.Predict(predict_request(3))
            context = (("traceparent", f"00-{TRACE}-{PARENT}-01"),)
            server.stub.Predict(predict_request(3, request_id="traced"), metadata=context)
        spans = {span.name: span for span in collector.spans}
    engine.stop()
    assert spans.keys() == {"ghostless.v1.PredictionService/Predict", "queue", "engine"}
    facade = spans["ghostless.v1.PredictionService/Predict"]
    assert (facade.trace_id.hex(), facade.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(facade)["ghostless.request_id"] == "traced"
    for step in (spans["queue"], spans["engine"]):
        assert facade.start_time_unix_nano <= step.start_time_unix_nano <= step.end_time_unix_nano
        assert step.end_time_unix_nano <= facade.end_time_unix_nano


def test_acquired_rows_are_on_disk_when_the_server_has_stopped(repository: Path, tmp_path: Path) -> None:
    engine = embedded_engine(ServeConfig(repository=repository))
    with observed(engine, acquisition_log=tmp_path / "log", acquisition_rows_per_minute=8, workers=1) as server:
        answer = server.stub.Predict(predict_request(40, request_id="a", outputs=[pb.OUTPUT_MEAN]))
        assert not answer.HasField("uncertainty")
    engine.stop()
    (file,) = (tmp_path / "log" / "demo" / "1").iterdir()
    rows = pq.read_table(file).to_pylist()
    assert [row["ghostless_request_id"] for row in rows] == ["a"] * 8
    assert all(row["ghostless_mean"] == pytest.approx(answer.mean[row["ghostless_row"]]) for row in rows)
