"""/v1 over HTTP against the same calls over gRPC, on a real server with two workers."""

import json
import socket
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from google.protobuf import json_format

from ghostless.v1 import prediction_pb2 as pb
from tests.serving.console.conftest import Guarded
from tests.support.grpc_calls import stub_on
from tests.support.http_calls import HttpClient
from tests.support.processes import ServeProcess
from tests.support.running import predict_request

ROWS = 40


def plain(request: pb.PredictRequest) -> dict[str, Any]:
    """The request as a person writes it: features as plain values and lists."""
    content: dict[str, Any] = json_format.MessageToDict(request, preserving_proto_field_name=True)
    for part in ("context", "candidates"):
        for name, column in content[part].items():
            values = next(iter(column.values()))["values"]
            content[part][name] = [int(each) if isinstance(each, str) else each for each in values]
    return content


def numbers(message: Any, prefix: str = "") -> dict[str, Any]:
    """Every field of a message or of its JSON, by path; lists of floats as float32."""
    found: dict[str, Any] = {}
    pairs = message.items() if isinstance(message, dict) else [(f.name, v) for f, v in message.ListFields()]
    for name, value in pairs:
        path = f"{prefix}{name}"
        if hasattr(value, "ListFields") or isinstance(value, dict):
            found |= numbers(value, f"{path}.")
        elif not isinstance(value, str | int) and len(value):
            found[path] = np.array(value, np.float32)
        elif value:
            found[path] = value
    return found


@pytest.mark.parametrize("is_plain", [True, False])
def test_answers_equal_grpcs_to_the_last_bit(client: HttpClient, channel: grpc.Channel, is_plain: bool) -> None:
    for seed in range(3):
        request = predict_request(
            ROWS,
            seed,
            quantile_levels=[0.05, 0.5],
            thresholds=[1.0],
            request_id=f"bits-{seed}",
            scoring=pb.Scoring(ucb=pb.Scoring.Ucb(kappa=1.0)),
        )
        content = plain(request) if is_plain else json_format.MessageToDict(request, preserving_proto_field_name=True)
        answer = client.post("/v1/predict", content)
        assert answer.status == 200, answer.body
        expected, got = numbers(stub_on(channel).Predict(request)), numbers(answer.json)
        assert got.keys() == expected.keys()
        assert {"mean", "quantiles.values", "bins.probabilities", "uncertainty.epistemic", "ranking"} <= got.keys()
        for name, value in expected.items():
            if isinstance(value, np.ndarray):
                assert got[name].tobytes() == value.tobytes(), name
            else:
                assert got[name] == value, name


def test_an_integer_is_a_float_where_the_feature_is_one(client: HttpClient) -> None:
    content = {"context": {"user_id": 3, "hour": 7}, "candidates": {"item_id": [1, 2], "duration": [10, 20.5]}}
    answer = client.post("/v1/predict", {**content, "outputs": ["mean"]})
    assert answer.status == 200, answer.body
    assert list(answer.json) == ["model", "version", "request_id", "rows", "mean"]


GOOD: dict[str, Any] = {"context": {"user_id": 3, "hour": 7.5}, "candidates": {"item_id": [1], "duration": [10.0]}}


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b'{"context": {"user_id": NaN}}', 400, "NaN is not JSON"),
        (b"[" * 100_000, 400, "not valid JSON"),
        ({**GOOD, "modle": "demo"}, 400, "modle"),
        ({**GOOD, "model": "nobody"}, 404, "nobody"),
        ({**GOOD, "version": 99}, 404, "99"),
        ({**GOOD, "outputs": ["nothing"]}, 400, "OUTPUT_NOTHING"),
        ({**GOOD, "context": 3}, 400, "must be an object"),
        ({**GOOD, "context": {"hour": 7.5}}, 400, "'user_id' (int64) is missing"),
        ({**GOOD, "context": {"user_id": 1.5, "hour": 7.5}}, 400, "must be int64, it has 1.5"),
        ({**GOOD, "context": {"user_id": True, "hour": 7.5}}, 400, "it has True"),
        ({**GOOD, "context": {"user_id": "x", "hour": 7.5}}, 400, "must be int64"),
        ({**GOOD, "context": {"user_id": 1 << 63, "hour": 7.5}}, 400, "must be int64"),
        ({**GOOD, "context": {"user_id": 1, "hour": 1e39}}, 400, "must be finite"),
        ({**GOOD, "context": {"user_id": None, "hour": 1}}, 400, "None"),
        ({**GOOD, "candidates": {"item_id": [1] * 301, "duration": [1.0] * 301}}, 400, "at most 300"),
        ({**GOOD, "candidates": {"item_id": [1, 2], "duration": [1.0]}}, 400, "equal length"),
        (b" " * (1 << 20) + b"{}", 413, "--max-message-mb"),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_wrong(
    client: HttpClient, content: Any, status: int, says: str
) -> None:
    answer = client.post("/v1/predict", content)
    assert answer.status == status
    assert answer.json["status"] == status
    assert says in answer.json["error"]
    assert answer.headers["content-type"] == "application/json"


def test_a_deadline_ends_with_504(client: HttpClient, open_server: ServeProcess) -> None:
    assert client.post("/v1/predict", GOOD).status == 200
    children = psutil.Process(open_server.process.pid).children()
    workers = [child for child in children if "serving.console" not in child.cmdline()]
    for worker in workers:
        worker.suspend()
    try:
        answer = client.post("/v1/predict", GOOD, ghostless_timeout_ms="100")
    finally:
        for worker in workers:
            worker.resume()
    assert (answer.status, answer.json["code"]) == (504, "DEADLINE_EXCEEDED")
    assert client.post("/v1/predict", GOOD, ghostless_timeout_ms="soon").status == 400


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(open_server: ServeProcess) -> None:
    body = json.dumps(GOOD).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with HttpClient(open_server) as place, socket.create_connection((place.host, place.port), 10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_outcomes_are_joined_with_the_prediction_made_over_http(client: HttpClient) -> None:
    assert client.post("/v1/predict", {**GOOD, "request_id": "http-1"}).status == 200
    answer = client.post("/v1/outcomes", {"request_ids": ["http-1", "x"], "rows": [0, 0], "actuals": [1.5, 1.0]})
    assert answer.json["results"] == ["JOINED", "UNKNOWN"]


def test_models_are_listed_and_described(client: HttpClient) -> None:
    assert client.get("/v1/models").json["models"][0]["versions"] == [
        {"version": 1, "state": "READY", "in_service": True, "message": ""}
    ]
    described = client.get("/v1/models/demo/versions/1").json
    assert json.loads(described["metadata"]["ghostless.head"]) == "cr"
    assert client.get("/v1/models/demo/versions/7").status == 404
    assert client.get("/v1/models/demo/versions/x").status == 404


def test_one_connection_serves_calls_metrics_and_health(client: HttpClient) -> None:
    assert client.post("/v1/predict", GOOD).status == 200
    for path in ("/metrics", "/livez", "/readyz", "/-/healthy", "/-/ready"):
        assert client.get(path).status == 200
    assert b"ghostless_requests_total" in client.get("/metrics").body


def test_a_new_connection_gets_metrics_without_the_consoles_process(open_server: ServeProcess) -> None:
    with HttpClient(open_server) as client:
        answer = client.get("/readyz")
    assert (answer.status, answer.body) == (200, b"2 workers are ready\n")


@pytest.mark.parametrize(
    ("identity", "path", "status", "code"),
    [
        ("", "/v1/models", 401, "UNAUTHENTICATED"),
        ("blind", "/v1/models", 403, "PERMISSION_DENIED"),
        ("limited", "/v1/models/demo", 403, "PERMISSION_DENIED"),
        ("reader", "/v1/models/demo", 200, ""),
        ("", "/v2/health/ready", 200, ""),
        ("", "/readyz", 200, ""),
    ],
)
def test_identities_are_grpcs_behind_mutual_tls(
    guarded: Guarded, identity: str, path: str, status: int, code: str
) -> None:
    with guarded.client(identity) as client:
        answer = client.get(path)
    assert answer.status == status
    if code:
        assert answer.json["code"] == code
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_an_identity_that_may_not_read_predicts_with_types_as_written(guarded: Guarded) -> None:
    with guarded.client("blind") as client:
        assert client.post("/v1/predict", GOOD).status == 200
        wrong = {**GOOD, "context": {"user_id": 3, "hour": 7}}
        assert "send it as floats" in client.post("/v1/predict", wrong).json["error"]
    with guarded.client("") as client:
        assert client.post("/v1/predict", GOOD).status == 401
