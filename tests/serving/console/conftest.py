"""Served processes: one open to everybody, one with mutual TLS and identities."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from tests.support.certificates import Certificates, make_certificates
from tests.support.http_calls import HttpClient
from tests.support.identities import IdentitiesWriter
from tests.support.onnx_models import SMALL, Recipe, write_version
from tests.support.processes import ServeProcess, served


@pytest.fixture(scope="package")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    root = tmp_path_factory.mktemp("repository")
    write_version(root, 1, SMALL)
    with served(root, "--workers", "2", "--max-rows", "300", "--max-message-mb", "1") as server:
        yield server


@pytest.fixture
def client(open_server: ServeProcess) -> Iterator[HttpClient]:
    with HttpClient(open_server) as client:
        yield client


@pytest.fixture
def channel(open_server: ServeProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(open_server.address) as channel:
        yield channel


@dataclass(frozen=True)
class Guarded:
    """`tokens` by identity: reader (read, predict), admin (all calls), limited (demo only), blind (predict only)."""

    server: ServeProcess
    tokens: dict[str, str]
    certificates: Certificates
    root: Path
    audit_log: Path

    def client(self, identity: str = "") -> HttpClient:
        context = self.certificates.context("ranker", ("http/1.1",))
        return HttpClient(self.server, self.tokens.get(identity, ""), context)


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    for version in (1, 2):
        write_version(folder / "repository", version, Recipe(seed=version))
    certificates = make_certificates(folder)
    writer = IdentitiesWriter(folder / "identities.toml")
    writer.add("reader", 'calls = ["predict", "read"]')
    writer.add("admin", 'calls = ["predict", "outcomes", "read", "admin"]')
    writer.add("limited", 'calls = ["predict", "read", "admin"]', 'models = ["other"]')
    writer.add("blind", 'calls = ["predict"]')
    flags = ["--identities", str(writer.path), "--audit-log", str(folder / "audit.log"), "--poll-s", "0.1"]
    for name, value in certificates.mutual.items():
        flags += [f"--{name.replace('_', '-')}", str(value)]
    with served(folder / "repository", *flags) as server:
        yield Guarded(server, writer.tokens, certificates, folder / "repository", folder / "audit.log")
