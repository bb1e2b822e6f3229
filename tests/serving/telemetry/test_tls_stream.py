"""The operations port over TLS."""

import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.security.tls_files import TlsFiles
from serving.telemetry.exposition import Exposition
from tests.support.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def _served(certificates: Certificates, directory: Path, mutual: bool) -> Iterator[Exposition]:
    exposition = Exposition("127.0.0.1", 0, directory, tls=TlsFiles(certificates.paths(mutual), ("http/1.1",)))
    yield exposition
    exposition.stop()


@pytest.fixture
def plain(certificates: Certificates, tmp_path: Path) -> Iterator[Exposition]:
    yield from _served(certificates, tmp_path, mutual=False)


@pytest.fixture
def mutual(certificates: Certificates, tmp_path: Path) -> Iterator[Exposition]:
    yield from _served(certificates, tmp_path, mutual=True)


def _get(exposition: Exposition, context: ssl.SSLContext) -> bytes:
    url = f"https://localhost:{exposition.port}/-/healthy"
    with urllib.request.urlopen(url, timeout=10, context=context) as response:
        body: bytes = response.read()
        return body


def test_it_answers_and_follows_a_new_certificate(plain: Exposition, certificates: Certificates) -> None:
    assert _get(plain, certificates.context(protocols=())) == b"ok\n"
    first = ssl.get_server_certificate(("127.0.0.1", plain.port), timeout=10)
    certificates.authority.issue_server("server", ["localhost", "127.0.0.1"])
    assert _get(plain, certificates.context(protocols=())) == b"ok\n"
    assert ssl.get_server_certificate(("127.0.0.1", plain.port), timeout=10) != first


def test_without_a_client_certificate_there_is_no_answer_where_one_is_required(
    mutual: Exposition, certificates: Certificates
) -> None:
    assert _get(mutual, certificates.context("ranker", protocols=())) == b"ok\n"
    with pytest.raises(OSError, match=r"alert certificate required|closed|reset|EOF"):
        _get(mutual, certificates.context(protocols=()))


def test_plain_text_is_refused_and_costs_nobody_else_anything(plain: Exposition, certificates: Certificates) -> None:
    with (
        socket.create_connection(("127.0.0.1", plain.port), 10) as silent,
        socket.create_connection(("127.0.0.1", plain.port), 10) as unencrypted,
    ):
        unencrypted.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in unencrypted.recv(1000)
        assert _get(plain, certificates.context(protocols=())) == b"ok\n"
        silent.close()
