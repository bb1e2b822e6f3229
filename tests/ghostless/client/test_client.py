"""The clients over a real socket, against a server of the generated code."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from ghostless.client import (
    Acquisition,
    AsyncClient,
    BusyError,
    CallError,
    Client,
    DeadlineError,
    DeniedError,
    Mean,
    Model,
    Prediction,
    Quantile,
    RejectedError,
    RetryPolicy,
    RiskAverse,
    Scoring,
    Thompson,
    Tls,
    Ucb,
    UnreachableError,
)
from ghostless.client.models import parse_model
from ghostless.client.scoring import parse_scoring
from ghostless.contract.errors import ConfigError, InvalidRequestError
from ghostless.v1 import prediction_pb2 as pb
from loadtest.server_process import free_port
from tests.support.scripted_server import Failure, demo_model, scripted_server, start
from tests.support.waiting import eventually

CANDIDATES = {"video_id": np.array([3, 1, 2]), "duration": np.array([0.5, 2.5, 1.5])}
CONTEXT = {"user_id": 7, "hour": 12.5}
Ask = Callable[..., Prediction]


def ask_blocking(address: str | list[str], **arguments: Any) -> Prediction:
    with Client(address, retry=arguments.pop("retry", RetryPolicy())) as client:
        return client.predict(**{"context": CONTEXT, "candidates": CANDIDATES, **arguments})


def ask_asyncio(address: str | list[str], **arguments: Any) -> Prediction:
    async def ask() -> Prediction:
        async with AsyncClient(address, retry=arguments.pop("retry", RetryPolicy())) as client:
            return await client.predict(**{"context": CONTEXT, "candidates": CANDIDATES, **arguments})

    return asyncio.run(ask())


@pytest.fixture(params=[ask_blocking, ask_asyncio], ids=["blocking", "asyncio"])
def ask(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


def test_every_output_arrives_in_its_shape(ask: Ask) -> None:
    with scripted_server() as server:
        prediction = ask(server.address, thresholds=(1.0, 2.0), top_k=2, request_id="r-1")
    mean = np.array([7.5, 9.5, 8.5], np.float32)
    assert (prediction.model, prediction.version, prediction.request_id, prediction.rows) == (
        "demo",
        3,
        "r-1",
        3,
    )
    np.testing.assert_array_equal(prediction.mean, mean)
    np.testing.assert_array_equal(prediction.levels, np.array([0.1, 0.5, 0.9], np.float32))
    np.testing.assert_array_equal(prediction.quantiles, mean[:, None] + np.array([-1, 0, 1]))
    np.testing.assert_array_equal(prediction.edges, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(prediction.bins, np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (3, 1)))
    for name, factor in {
        "aleatoric": 2,
        "epistemic": 3,
        "total": 5,
        "logit_variance": 7,
        "categorical_aleatoric": 11,
        "categorical_epistemic": 13,
        "categorical_total": 24,
        "categorical_epistemic_delta": 17,
        "score": 1,
    }.items():
        np.testing.assert_array_equal(getattr(prediction, name), mean * factor, err_msg=name)
    np.testing.assert_array_equal(prediction.exceedance, mean[:, None] + np.array([1, 2]))
    np.testing.assert_array_equal(prediction.density_grid, [0, 4])
    np.testing.assert_array_equal(prediction.density, np.repeat(mean, 2).reshape(3, 2))
    np.testing.assert_array_equal(prediction.emg_density, np.repeat(mean * 19, 2).reshape(3, 2))
    np.testing.assert_array_equal(prediction.ranking, [1, 2])


def test_the_request_carries_what_was_asked(ask: Ask) -> None:
    with scripted_server() as server:
        ask(
            server.address,
            candidates={**CANDIDATES, "tag": ["a", "b", "c"]},
            model="other",
            version=5,
            outputs=("mean", "categorical_uncertainty"),
            quantile_levels=(0.25, 0.75),
            scoring=RiskAverse(0.5),
        )
    (request,) = server.servicer.requests
    assert list(request.context["user_id"].int64s.values) == [7]
    assert list(request.context["hour"].floats.values) == [12.5]
    assert list(request.candidates["video_id"].int64s.values) == [3, 1, 2]
    assert list(request.candidates["duration"].floats.values) == [0.5, 2.5, 1.5]
    assert list(request.candidates["tag"].strings.values) == ["a", "b", "c"]
    assert (request.model, request.version, list(request.outputs)) == ("other", 5, [1, 5])
    assert list(request.quantile_levels) == [0.25, 0.75]
    assert request.scoring.WhichOneof("rule") == "risk_averse"
    assert request.scoring.risk_averse.weight == 0.5


def test_candidates_one_by_one_are_sent_as_columns(ask: Ask) -> None:
    rows = [
        {"video_id": 3, "duration": 1, "tag": "a"},
        {"duration": 2.5, "video_id": 1, "tag": "b"},
    ]
    with scripted_server() as server:
        assert ask(server.address, candidates=rows).rows == 2
    (request,) = server.servicer.requests
    assert list(request.candidates["video_id"].int64s.values) == [3, 1]
    assert list(request.candidates["duration"].floats.values) == [1.0, 2.5]
    assert list(request.candidates["tag"].strings.values) == ["a", "b"]


@pytest.mark.parametrize(
    ("candidates", "complaint"),
    [
        ({"x": np.zeros((2, 2))}, r"'x' has shape \[2, 2\]"),
        ({"x": np.array([2**63], np.uint64)}, "'x' does not fit into int64"),
        ({"x": [1 + 2j]}, "'x' is complex128"),
        ({"x": [3, None]}, "'x' has None in row 1; expected integers, floats or strings"),
        ({"x": ["a", 3]}, "'x' mixes numbers and strings: row 1 is 3, row 0 is 'a'"),
        ({"x": [1, 2**70]}, "'x' does not fit into int64"),
        ({"x": np.array(["a", None], object)}, "'x' has None in row 1"),
        ({"x": [[1, 2], [3]]}, "'x' has rows of different lengths"),
        ([], "candidates is an empty list"),
        ([{"x": 1}, {"x": "a"}], "'x' mixes numbers and strings: row 0 is 1, row 1 is 'a'"),
        ([{"x": 1}, {"x": None}], "'x' has None in row 1"),
        ([{"x": 1}, [2]], "candidate 1 is a list; expected a dict"),
        ([{"x": 1, "y": 2}, {"x": 1}], "candidate 1 lacks 'y', which candidate 0 has; expected the same features"),
        ([{"x": 1}, {"x": 1, "z": 2}], "candidate 1 has 'z', which candidate 0 lacks"),
        ([{"x": 1}, {"z": 2}], "candidate 1 lacks 'x', which candidate 0 has and has 'z', which candidate 0 lacks"),
    ],
)
def test_what_the_wire_cannot_carry_is_named(candidates: Any, complaint: str) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        ask_blocking("127.0.0.1:1", candidates=candidates)


def test_unknown_output_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="'median' is not one of: mean, quantiles"):
        ask_blocking("127.0.0.1:1", outputs=("median",))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, RejectedError),
        (grpc.StatusCode.NOT_FOUND, RejectedError),
        (grpc.StatusCode.PERMISSION_DENIED, DeniedError),
        (grpc.StatusCode.UNAUTHENTICATED, DeniedError),
        (grpc.StatusCode.ABORTED, CallError),
    ],
)
def test_failures_that_a_retry_can_not_repair_are_raised_at_once(
    ask: Ask, code: grpc.StatusCode, kind: type[CallError]
) -> None:
    with scripted_server(Failure(code, "why")) as server, pytest.raises(kind, match="why") as raised:
        ask(server.address)
    assert raised.value.code is code
    assert len(server.servicer.requests) == 1


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_unavailable_and_busy_are_tried_again(ask: Ask, code: grpc.StatusCode) -> None:
    with scripted_server(Failure(code), Failure(code)) as server:
        assert ask(server.address).rows == 3
    assert len(server.servicer.requests) == 3


@pytest.mark.parametrize("attempts", [1, 3])
def test_attempts_are_bounded(ask: Ask, attempts: int) -> None:
    failure = Failure(grpc.StatusCode.UNAVAILABLE)
    with scripted_server(*[failure] * 9) as server, pytest.raises(UnreachableError, match="scripted"):
        ask(server.address, retry=RetryPolicy(max_attempts=attempts))
    assert len(server.servicer.requests) == attempts


def push_back(milliseconds: int) -> Failure:
    """A full server's answer."""
    hint = (("retry-after-ms", str(milliseconds)), ("grpc-retry-pushback-ms", str(milliseconds)))
    return Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, metadata=hint)


def test_the_wait_that_the_server_names_is_waited(ask: Ask) -> None:
    with scripted_server(push_back(120)) as server:
        began = time.monotonic()
        assert ask(server.address).rows == 3
    assert time.monotonic() - began >= 0.12


def test_a_server_can_forbid_retries(ask: Ask) -> None:
    with scripted_server(push_back(-1)) as server, pytest.raises(BusyError):
        ask(server.address)
    assert len(server.servicer.requests) == 1


def test_a_server_that_stays_busy_is_reported_with_its_hint(ask: Ask) -> None:
    with scripted_server(*[push_back(5)] * 9) as server, pytest.raises(BusyError) as raised:
        ask(server.address)
    assert raised.value.retry_after_s == 0.005
    assert len(server.servicer.requests) == 4


def test_retries_stop_while_most_calls_fail() -> None:
    """Of 4 tokens each failure takes one, and there are no retries with 2 or fewer left."""
    failure = Failure(grpc.StatusCode.UNAVAILABLE)
    retry = RetryPolicy(throttle_tokens=4, throttle_ratio=0.5)
    with scripted_server(*[failure] * 5) as server, Client(server.address, connections=1, retry=retry) as client:
        sent = []
        for _ in range(4):
            with pytest.raises(UnreachableError):
                client.predict(context=CONTEXT, candidates=CANDIDATES)
            sent.append(len(server.servicer.requests))
        assert sent == [2, 3, 4, 5]
        for _ in range(8):
            client.predict(context=CONTEXT, candidates=CANDIDATES)
        server.servicer.script = [failure]
        assert client.predict(context=CONTEXT, candidates=CANDIDATES).rows == 3


def test_large_requests_are_retried_too(ask: Ask) -> None:
    candidates = {"video_id": np.arange(50_000), "duration": np.zeros(50_000)}
    with scripted_server(Failure(grpc.StatusCode.UNAVAILABLE)) as server:
        assert ask(server.address, candidates=candidates, timeout_s=20.0).rows == 50_000
    assert len(server.servicer.requests) == 2


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"max_attempts": 0}, "max_attempts is 0; gRPC allows 1 to 5"),
        ({"max_attempts": 6}, "max_attempts is 6; gRPC allows 1 to 5"),
        ({"throttle_tokens": 0}, "throttle_tokens is 0; gRPC allows 1 to 1000"),
        ({"max_backoff_s": 0.0}, r"max_backoff_s is 0.0; expected at least 0.001"),
    ],
)
def test_policies_that_grpc_would_not_take_are_refused(policy: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        RetryPolicy(**policy)


def test_the_deadline_bounds_the_call(ask: Ask) -> None:
    began = time.monotonic()
    with scripted_server(2.0) as server, pytest.raises(DeadlineError):
        ask(server.address, timeout_s=0.15)
    assert time.monotonic() - began < 1.5


def test_nobody_there_is_unreachable(ask: Ask) -> None:
    with pytest.raises(UnreachableError):
        ask(f"127.0.0.1:{free_port()}")


def test_calls_go_round_the_addresses() -> None:
    with scripted_server() as one, scripted_server() as two:
        with Client([one.address, two.address]) as client:
            for _ in range(20):
                client.predict(context=CONTEXT, candidates=CANDIDATES)
        assert len(one.servicer.requests) >= 8
        assert len(two.servicer.requests) >= 8


def test_a_dead_address_is_skipped(ask: Ask) -> None:
    with scripted_server() as alive:
        for _ in range(5):
            assert ask([f"127.0.0.1:{free_port()}", alive.address]).rows == 3


def test_a_server_that_dies_is_left_and_taken_back() -> None:
    first, second = start(), start()
    try:
        with Client(f"{first.address},{second.address}", timeout_s=5.0) as client:
            ask = partial(client.predict, context=CONTEXT, candidates=CANDIDATES)
            ask()
            first.stop()
            for _ in range(10):
                ask()
            first = start(port=int(first.address.rpartition(":")[2]))
            eventually(lambda: ask().rows and first.servicer.requests, "a call to the server that is back")
    finally:
        first.stop()
        second.stop()


@pytest.mark.parametrize(
    ("addresses", "complaint"),
    [
        ("", "no address given"),
        ("a:1,nonsense", "'nonsense' is not host:port"),
        ("a.invalid:1,b.invalid:1", "resolved"),
    ],
)
def test_bad_addresses_are_reported(addresses: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Client(addresses)


def test_a_name_that_does_not_resolve_is_skipped() -> None:
    with scripted_server() as server:
        assert ask_blocking(["nowhere.invalid:1", server.address.replace("127.0.0.1", "localhost")]).rows == 3


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A key and a certificate for the name ghostless.test that signs itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on PATH; install it to test TLS")
    folder: Path = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=ghostless.test", "-addext", "subjectAltName=DNS:ghostless.test"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return (folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes()


def test_mutual_tls(certificate: tuple[bytes, bytes]) -> None:
    key, chain = certificate
    credentials = grpc.ssl_server_credentials([(key, chain)], chain, require_client_auth=True)
    with scripted_server(credentials=credentials) as server:
        tls = Tls(root=chain, certificate=chain, key=key, server_name="ghostless.test")
        with Client(server.address, tls=tls) as client:
            assert client.get_model().name == "demo"
        without_certificate = Tls(root=chain, server_name="ghostless.test")
        with Client(server.address, tls=without_certificate) as stranger, pytest.raises(UnreachableError):
            stranger.get_model()
        wrong_name = Tls(root=chain, certificate=chain, key=key, server_name="other.test")
        with Client(server.address, tls=wrong_name) as misled, pytest.raises(UnreachableError):
            misled.get_model()


def test_outputs_of_a_newer_server_are_left_out() -> None:
    message = pb.Model(outputs=[pb.OUTPUT_MEAN, 99], outputs_on_request=[pb.OUTPUT_EMG_DENSITY, 98])  # type: ignore[list-item]
    model = parse_model(message.SerializeToString())
    assert (model.outputs, model.outputs_on_request) == (("mean",), ("emg_density",))


def test_models_are_described() -> None:
    async def describe(address: str) -> tuple[Model, tuple[Model, ...]]:
        async with AsyncClient(address) as client:
            return await client.get_model("demo", 3), (await client.list_models()).models

    with scripted_server() as server:
        with Client(server.address) as client:
            model, models = client.get_model(), client.list_models()
            with pytest.raises(RejectedError, match="available: demo"):
                client.get_model("nope")
        assert asyncio.run(describe(server.address)) == (model, models.models)
    assert models.default == model.name == "demo"
    assert [(f.name, f.type, f.role, f.vocabulary) for f in model.features] == [
        ("user_id", "int64", "context", 100),
        ("hour", "float32", "context", 0),
        ("video_id", "int64", "candidate", 500),
        ("duration", "float32", "candidate", 0),
    ]
    assert [(v.version, v.state, v.in_service, v.message) for v in model.versions] == [
        (3, "ready", True, ""),
        (4, "failed", False, "damaged file"),
    ]
    assert model.outputs == ("mean", "quantiles", "bins", "uncertainty")
    assert model.metadata == dict(demo_model().metadata)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("mean", Mean()),
        ("quantile:0.9", Quantile(0.9)),
        ("ucb:1.5", Ucb(1.5)),
        ("thompson:42", Thompson(42)),
        ("thompson:42:0.5", Thompson(42, 0.5)),
        ("acquisition:0.3", Acquisition(0.3)),
        ("risk-averse:2", RiskAverse(2.0)),
    ],
)
def test_scoring_rules_as_written(text: str, rule: Scoring) -> None:
    assert parse_scoring(text) == rule
    name = text.partition(":")[0].replace("-", "_")
    assert rule.message().WhichOneof("rule") == name


@pytest.mark.parametrize(
    "text", ["", "median", "ucb", "ucb:x", "thompson:1.5", "thompson:1:", "thompson:1:2:3", "mean:1"]
)
def test_unknown_scoring_rules_are_reported(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not one of: mean, quantile:LEVEL"):
        parse_scoring(text)
