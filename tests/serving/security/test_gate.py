"""Identities at a running server: who gets in, what they may do there, and what is counted."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as oip
from tritonclient.grpc import service_pb2_grpc

from ghostless.client import BusyError, Client, RetryPolicy
from ghostless.v1 import prediction_pb2 as pb
from serving.config import ServeConfig
from serving.engines.batcher import BatchLimits
from serving.server import Server
from serving.telemetry.assemble import Observability
from tests.support.certificates import URI, make_certificates
from tests.support.grpc_calls import stub_on
from tests.support.identities import IdentitiesWriter, bearer
from tests.support.running import FakeEngine, Running, predict_request, serving
from tests.support.waiting import eventually

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
def identities(tmp_path: Path) -> IdentitiesWriter:
    return IdentitiesWriter(tmp_path / "identities.toml")


def _engine() -> FakeEngine:
    return FakeEngine(BatchLimits(1, 512, 10_000))


@contextmanager
def _running(identities: IdentitiesWriter, **settings: object) -> Iterator[Running]:
    with serving(_engine(), identities=identities.path, poll_s=0.02, **settings) as running:
        yield running


def _code(running: Running, token: str, **fields: object) -> grpc.StatusCode:
    """Of a Predict."""
    try:
        running.stub.Predict(predict_request(**fields), timeout=10, metadata=bearer(token))  # type: ignore[arg-type]
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_tokens_are_rotated_by_replacing_the_file_while_connections_stay(identities: IdentitiesWriter) -> None:
    first = identities.add("ranker", 'calls = ["predict"]')
    with _running(identities) as running:
        assert _code(running, first) is grpc.StatusCode.OK
        second = identities.add("other", 'calls = ["predict"]')
        eventually(lambda: _code(running, second) is grpc.StatusCode.OK, "the second token")
        assert _code(running, first) is grpc.StatusCode.OK
        identities.remove_all()
        eventually(lambda: _code(running, first) is UNAUTHENTICATED, "the end of the first token")
        assert _code(running, second) is UNAUTHENTICATED


def test_a_token_ends_while_its_connection_is_open(identities: IdentitiesWriter) -> None:
    from datetime import UTC, datetime, timedelta

    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    token = identities.add("ranker", 'calls = ["predict"]', expires=soon)
    with _running(identities) as running:
        assert _code(running, token) is grpc.StatusCode.OK
        eventually(lambda: _code(running, token) is UNAUTHENTICATED, "its end")


def test_health_is_open_unless_it_is_protected(identities: IdentitiesWriter) -> None:
    token = identities.add("prober", "calls = []")
    question = health_pb2.HealthCheckRequest()
    with _running(identities) as running:
        assert health_pb2_grpc.HealthStub(running.channel).Check(question, timeout=5).status == 1
        assert service_pb2_grpc.GRPCInferenceServiceStub(running.channel).ServerLive(oip.ServerLiveRequest()).live
        assert _code(running, token) is DENIED
    with _running(identities, protect_health=True) as running:
        stub = health_pb2_grpc.HealthStub(running.channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Check(question, timeout=5)
        assert refused.value.code() is UNAUTHENTICATED
        assert stub.Check(question, timeout=5, metadata=bearer(token)).status == 1


def test_models_that_are_not_for_an_identity_are_not_shown_to_it(identities: IdentitiesWriter) -> None:
    mine = identities.add("ranker", 'calls = ["read", "predict"]', 'models = ["demo"]')
    other = identities.add("other", 'calls = ["read", "predict"]', 'models = ["else"]')
    with _running(identities) as running:
        for token, names in ((mine, ["demo"]), (other, [])):
            listed = running.stub.ListModels(pb.ListModelsRequest(), timeout=5, metadata=bearer(token))
            assert [model.name for model in listed.models] == names
            inference = service_pb2_grpc.GRPCInferenceServiceStub(running.channel)
            index = inference.RepositoryIndex(oip.RepositoryIndexRequest(), timeout=5, metadata=bearer(token))
            assert [model.name for model in index.models] == names
        assert _code(running, mine) is grpc.StatusCode.OK
        # Not NOT_FOUND, which would tell what there is.
        for model in ("", "demo", "none"):
            assert _code(running, other, model=model) is DENIED
        assert _code(running, mine, model="none") is DENIED
        assert _code(running, other, model="else") is grpc.StatusCode.NOT_FOUND


def test_a_certificate_is_an_identity_and_does_not_make_a_wrong_token_good(
    identities: IdentitiesWriter, tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    token = identities.add("bytoken", "calls = []")
    identities.add("bycertificate", 'calls = ["predict"]', f'certificates = ["URI:{URI}"]')
    with (
        _running(identities, tls_client_auth="optional", **certificates.mutual) as running,
        certificates.channel(running.port, "ranker") as known,
        certificates.channel(running.port) as anonymous,
    ):
        assert stub_on(known).Predict(predict_request(), timeout=10).rows == 3
        for channel, metadata, code in (
            (anonymous, (), UNAUTHENTICATED),
            (known, bearer("wrong"), UNAUTHENTICATED),
            (known, bearer(token), DENIED),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                stub_on(channel).Predict(predict_request(), timeout=10, metadata=metadata)
            assert refused.value.code() is code


def test_the_row_rate_and_rows_at_once_are_held_and_say_when_to_come_back(identities: IdentitiesWriter) -> None:
    slow = identities.add("slow", 'calls = ["predict"]', "rows_per_s = 10")
    narrow = identities.add("narrow", 'calls = ["predict"]', "concurrent_rows = 8")
    with _running(identities) as running:
        assert _code(running, slow, rows=100) is grpc.StatusCode.OK
        client = Client(running.address, token=slow, retry=RetryPolicy(max_attempts=1), connections=1)
        with client, pytest.raises(BusyError) as refused:
            client.predict(context={"user_id": 7, "hour": 12.0}, candidates={"item_id": [1], "duration": [8.0]})
        assert refused.value.retry_after_s is not None
        assert 5 < refused.value.retry_after_s < 10
        assert _code(running, narrow, rows=9) is EXHAUSTED
        engine = running.engine
        assert isinstance(engine, FakeEngine)
        engine.gate.clear()
        held = threading.Thread(target=_code, args=(running, narrow), kwargs={"rows": 5})
        held.start()
        for _ in range(2):  # the first was that of `slow`
            assert engine.started.acquire(timeout=10)
        assert _code(running, narrow, rows=4) is EXHAUSTED
        engine.gate.set()
        held.join()
        assert _code(running, narrow, rows=8) is grpc.StatusCode.OK


def test_rows_of_calls_that_fail_or_are_cancelled_are_given_back(identities: IdentitiesWriter) -> None:
    token = identities.add("narrow", 'calls = ["predict"]', "concurrent_rows = 8")
    with _running(identities) as running:
        engine = running.engine
        assert isinstance(engine, FakeEngine)
        engine.poison = float("nan")
        for _ in range(3):
            assert _code(running, token, rows=8) is grpc.StatusCode.INTERNAL
        engine.poison = 0.0
        for _ in range(3):
            assert _code(running, token, rows=8, quantile_levels=[2.0]) is grpc.StatusCode.INVALID_ARGUMENT
        engine.gate.clear()
        for _ in range(3):
            call = running.stub.Predict.future(predict_request(rows=8), timeout=30, metadata=bearer(token))
            eventually(lambda: engine.batcher.queued_rows or engine.started.acquire(blocking=False), "the call")
            call.cancel()
            eventually(lambda: _code(running, token, rows=9) is EXHAUSTED, "the refusal")
            engine.gate.set()
            eventually(lambda: _code(running, token, rows=8) is grpc.StatusCode.OK, "room again")


def test_refusals_are_counted_by_identity_and_reason_and_admin_calls_are_audited(
    identities: IdentitiesWriter, tmp_path: Path
) -> None:
    reader = identities.add("reader", 'calls = ["read"]')
    admin = identities.add("admin", 'calls = ["admin"]')
    old = identities.add("old", "calls = []", expires="2020-01-01")
    audit = tmp_path / "audit.jsonl"
    config = ServeConfig.model_validate(
        {"port": 0, "identities": identities.path, "audit_log": audit, "access_log": str(tmp_path / "access.log")}
    )
    engine = _engine()
    observability = Observability(config, engine)
    server = Server(config, engine, observability=observability)
    port = server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        running = Running(server, engine, port, channel)
        for token in ("", "wrong", reader, old):
            assert _code(running, token) in (UNAUTHENTICATED, DENIED)
        load = service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryModelLoad
        for token in (reader, admin, "wrong"):
            with pytest.raises(grpc.RpcError):
                load(oip.RepositoryModelLoadRequest(model_name="demo"), timeout=5, metadata=bearer(token))
    server.stop()

    def refused(identity: str, reason: str) -> float | None:
        labels = {"identity": identity, "reason": reason}
        return observability.metrics.registry.get_sample_value("ghostless_refused_calls_total", labels)

    assert refused("", "token") == 3
    assert refused("reader", "call") == 2
    assert refused("old", "expired") == 1
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["identity"], line["result"]) for line in lines] == [("reader", "refused"), ("admin", "allowed")]
    for line in lines:
        assert line["call"] == "/inference.GRPCInferenceService/RepositoryModelLoad"
        assert line["from"].startswith("ipv4:127.0.0.1:")
        assert line["time"].endswith("+00:00")
    assert audit.stat().st_mode & 0o077 == 0
    codes = [json.loads(line)["code"] for line in (tmp_path / "access.log").read_text().splitlines()]
    assert codes.count("UNAUTHENTICATED") == 3
    assert codes.count("PERMISSION_DENIED") == 1


def test_an_admin_call_that_cannot_be_audited_fails_and_others_go_on(
    identities: IdentitiesWriter, tmp_path: Path
) -> None:
    token = identities.add("admin", 'calls = ["predict", "admin"]')
    audit = tmp_path / "audit.jsonl"
    with _running(identities, audit_log=audit) as running:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(running.channel)
        audit.unlink()
        audit.mkdir()
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as refused:
                stub.RepositoryModelLoad(oip.RepositoryModelLoadRequest(), timeout=5, metadata=bearer(token))
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "audit" in str(refused.value.details())
        assert _code(running, token) is grpc.StatusCode.OK
        audit.rmdir()
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as unknown:
                stub.RepositoryModelLoad(oip.RepositoryModelLoadRequest(), timeout=5, metadata=bearer(token))
            assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert len(audit.read_text().splitlines()) == 3, "each call is written, also with equal headers"


def test_a_permission_that_was_withdrawn_ends_at_once(identities: IdentitiesWriter) -> None:
    """What was found for a connection's last headers holds as long as the file that it was found in."""
    token = identities.add("ranker", 'calls = ["predict", "read"]')
    with _running(identities) as running:
        assert _code(running, token) is grpc.StatusCode.OK
        text = identities.path.read_text()
        draft = identities.path.with_suffix(".new")
        draft.write_text(text.replace('"predict", ', ""))
        draft.chmod(0o600)
        draft.replace(identities.path)
        eventually(lambda: _code(running, token) is DENIED, "the end of its permission")
