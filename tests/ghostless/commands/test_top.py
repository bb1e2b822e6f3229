"""`ghostless top` against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.support.command_line import Ghostless
from tests.support.grpc_calls import stub_on
from tests.support.http_calls import HttpClient
from tests.support.onnx_models import write_version
from tests.support.processes import ServeProcess, served
from tests.support.running import predict_request


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    root = tmp_path_factory.mktemp("repository")
    write_version(root, 1)
    with served(root) as server:
        with grpc.insecure_channel(server.address) as channel:
            for seed in range(20):
                stub_on(channel).Predict(predict_request(5, seed))
        yield server


@pytest.fixture
def url(server: ServeProcess) -> str:
    with HttpClient(server) as place:
        return f"http://{place.host}:{place.port}"


def test_figures_as_json(ghostless: Ghostless, url: str) -> None:
    status, text, _ = ghostless("top", "--url", url, "--json", "--every", "1")
    found = json.loads(text)
    assert status == 0
    assert found["totals"]["requests"] == 20
    assert [(each["model"], each["version"]) for each in found["versions"]] == [("demo", "1")]


def test_figures_as_a_table(ghostless: Ghostless, url: str) -> None:
    status, text, _ = ghostless("top", "--url", f"{url}/", "--once", "--every", "1")
    assert status == 0
    assert "1 workers ready" in text
    assert "demo 1" in text


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("localhost:9500", "expected http://"),
        ("http://127.0.0.1:9", "can't be read"),
        ("ftp://x", "expected http://"),
    ],
)
def test_a_wrong_address_is_one_line(ghostless: Ghostless, address: str, says: str) -> None:
    status, _, error = ghostless("top", "--url", address, "--once")
    assert status == 1
    assert says in error


def test_a_missing_file_is_one_line(ghostless: Ghostless, tmp_path: Path) -> None:
    status, _, error = ghostless("top", "--url", "https://127.0.0.1:9", "--ca", tmp_path / "ca.pem")
    assert status == 1
    assert "TLS files" in error
