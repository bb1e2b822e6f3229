"""Certificates that change under a running server."""

import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import grpc
import numpy.typing as npt
import pytest

from ghostless.client import Client, RetryPolicy, UnreachableError
from ghostless.contract.errors import ConfigError
from serving.config import ServeConfig
from serving.engines.batcher import BatchLimits
from serving.security.development_ca import DevelopmentCa
from serving.security.tls_files import TlsFiles
from serving.server import Server
from serving.telemetry.assemble import Observability
from tests.support.certificates import Certificates, make_certificates
from tests.support.grpc_calls import stub_on
from tests.support.running import FakeEngine, predict_request, serving
from tests.support.waiting import eventually

CANDIDATES: dict[str, npt.ArrayLike] = {"item_id": [1, 2], "duration": [8.0, 15.0]}
CONTEXT = {"user_id": 7, "hour": 12.0}


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


def _engine() -> FakeEngine:
    return FakeEngine(BatchLimits(1, 512, 10_000))


def _client(certificates: Certificates, name: str, port: int) -> Client:
    """Without retries, which would hide a failure."""
    return Client(f"localhost:{port}", tls=certificates.tls(name), retry=RetryPolicy(max_attempts=1))


def _grew(answers: list[int], before: list[int]) -> bool:
    return all(now > then for now, then in zip(answers, before, strict=True))


def test_changed_files_are_loaded_once_and_broken_ones_never(certificates: Certificates) -> None:
    files = TlsFiles(certificates.paths(mutual=True), ("h2",))
    first = files.current
    assert files.refresh() is None
    certificates.authority.issue_server("server", ["localhost"], days=5)
    assert files.refresh() is True
    assert files.refresh() is None
    assert files.context() is not first.context
    assert files.current.expiries["server"] == pytest.approx(time.time() + 5 * 86400, abs=60)
    good = files.current
    # The key of another certificate, as in the middle of a rotation.
    shutil.copy(certificates.folder / "ranker-key.pem", certificates.folder / "server-key.pem")
    assert files.refresh() is False
    assert files.current is good
    certificates.authority.issue_server("server", ["localhost"])
    assert files.refresh() is True
    certificates.crl.write_text("no list")
    assert files.refresh() is False


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("server.pem", None, "cannot use"),
        ("server.pem", "", "cannot use"),
        ("server-key.pem", None, "cannot read the TLS key"),
        ("ca.pem", "nothing", "authorities"),
        ("crl.pem", "-----BEGIN X509 CRL-----\n-----END X509 CRL-----\n", "revocation list"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    certificates: Certificates, file: str, content: str | None, complaint: str
) -> None:
    path = certificates.folder / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        TlsFiles(certificates.paths(mutual=True), ("h2",))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o666])
def test_a_key_that_others_can_read_or_replace_is_refused(certificates: Certificates, mode: int) -> None:
    key = certificates.folder / "server-key.pem"
    key.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600"):
        TlsFiles(certificates.paths(), ("h2",))
    key.chmod(0o440)  # as Kubernetes mounts secrets
    TlsFiles(certificates.paths(), ("h2",))


def test_no_call_is_lost_while_certificates_are_replaced(certificates: Certificates) -> None:
    """Calls on open connections, and on new ones all the time."""
    failures: list[str] = []
    answers = [0, 0]
    stop = threading.Event()

    def ask(index: int, port: int, calls: int) -> None:
        while not stop.is_set():
            with _client(certificates, "ranker", port) as client:
                for _ in range(calls):
                    try:
                        client.predict(context=CONTEXT, candidates=CANDIDATES, timeout_s=10.0)
                    except Exception as error:
                        failures.append(repr(error))
                    answers[index] += 1
                    if stop.is_set():
                        break

    with serving(_engine(), poll_s=0.02, **certificates.mutual) as running:
        askers = [
            threading.Thread(target=ask, args=(index, running.port, calls)) for index, calls in enumerate((1, 1 << 30))
        ]
        for asker in askers:
            asker.start()
        for days in range(1, 11):
            certificates.authority.issue_server("server", ["localhost"], days=days)
            certificates.authority.revoke([])
            eventually(partial(_grew, answers, answers.copy()), "answers of both")
        stop.set()
        for asker in askers:
            asker.join()
    assert not failures
    assert min(answers) >= 10


def test_a_revoked_certificate_loses_its_connection_and_gets_no_other(certificates: Certificates) -> None:
    certificates.authority.issue_client("other")
    with (
        serving(_engine(), poll_s=0.02, **certificates.mutual) as running,
        _client(certificates, "ranker", running.port) as ranker,
        _client(certificates, "other", running.port) as other,
    ):
        for client in (ranker, other):
            assert client.predict(context=CONTEXT, candidates=CANDIDATES, timeout_s=10.0).rows == 2
        certificates.authority.revoke(["ranker"])

        def is_refused() -> bool:
            try:
                ranker.predict(context=CONTEXT, candidates=CANDIDATES)
            except UnreachableError:
                return True
            return False

        eventually(is_refused, "the refusal")
        assert other.predict(context=CONTEXT, candidates=CANDIDATES, timeout_s=10.0).rows == 2


@pytest.mark.parametrize("whose", ["expired", "another authority's", "a server's"])
def test_a_certificate_that_is_not_a_clients_is_refused(certificates: Certificates, tmp_path: Path, whose: str) -> None:
    folder = tmp_path / "others"
    if whose == "expired":
        past = DevelopmentCa(certificates.folder, now=datetime.now(UTC) - timedelta(days=2))
        certificate, key = past.issue_client("late", days=1)
    elif whose == "a server's":
        certificate, key = certificates.authority.issue_server("second", ["localhost"])
    else:
        certificate, key = DevelopmentCa(folder).issue_client("ranker")
    credentials = grpc.ssl_channel_credentials(certificates.ca.read_bytes(), key.read_bytes(), certificate.read_bytes())
    with (
        serving(_engine(), **certificates.mutual) as running,
        grpc.secure_channel(f"localhost:{running.port}", credentials) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        stub_on(channel).Predict(predict_request(), timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_expiry_and_reloads_are_metrics(certificates: Certificates) -> None:
    engine = _engine()
    config = ServeConfig.model_validate({"port": 0, "poll_s": 0.02, **certificates.mutual})
    observability = Observability(config, engine)
    server = Server(config, engine, observability=observability)
    server.start()
    try:

        def value(name: str, **labels: str) -> float | None:
            return observability.metrics.registry.get_sample_value(f"ghostless_{name}", labels)

        for file in ("server", "client_ca", "crl"):
            expiry = value("certificate_expiry_seconds", file=file)
            assert expiry is not None
            assert expiry > time.time()
        certificates.authority.issue_server("server", ["localhost"], days=2)
        eventually(lambda: value("security_reloads_total", file="tls", result="ok"), "the reload")
        soon = time.time() + 2 * 86400
        assert value("certificate_expiry_seconds", file="server") == pytest.approx(soon, abs=60)
        (certificates.folder / "server.pem").write_text("broken")
        eventually(lambda: value("security_reloads_total", file="tls", result="failed"), "the failed reload")
        assert value("certificate_expiry_seconds", file="server") == pytest.approx(soon, abs=60)
    finally:
        server.stop()
