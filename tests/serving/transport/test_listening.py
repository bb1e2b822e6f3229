"""The server on a Unix socket, with gRPC's own client and the Python client."""

import os
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ghostless.client import Client
from ghostless.contract.errors import ConfigError
from serving.transport.listening import bound, stop_listening
from tests.support.echoing import ECHO, HOLD, echoing
from tests.support.grpc_calls import raw_method
from tests.support.onnx_models import write_version
from tests.support.processes import served
from tests.support.waiting import eventually


@pytest.fixture
def path() -> Iterator[str]:
    """Short: the kernel takes 107 bytes."""
    with TemporaryDirectory(prefix="ghostless-") as folder:
        yield f"{folder}/s"


def _listening(path: str) -> socket.socket:
    listener = bound(f"unix:{path}", 0)
    listener.listen()
    return listener


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}"])
def test_grpcs_own_client(path: str, form: str) -> None:
    with echoing(listener=_listening(path)) as server, grpc.insecure_channel(form.format(path)) as channel:
        message = bytes(range(256)) * 4000
        assert raw_method(channel, ECHO)(message, timeout=10) == message
        held = raw_method(channel, HOLD).future(b"peer", timeout=10)
        eventually(lambda: server.held, "the call")
        assert server.connection().peer.startswith("unix:")
        server.held[0][1].answer(b"answered")
        assert held.result() == b"answered"
    assert not os.path.exists(path)


def test_a_socket_that_a_killed_server_left_is_taken_over(path: str) -> None:
    _listening(path).close()
    assert os.path.exists(path)
    stop_listening(_listening(path))
    assert not os.path.exists(path)


def test_a_socket_in_use_and_a_file_are_left_alone(path: str) -> None:
    with closing(_listening(path)), pytest.raises(ConfigError, match="--host"):
        bound(f"unix:{path}", 0)
    file = Path(path).with_name("file")
    file.write_text("mine")
    with pytest.raises(ConfigError, match="--host"):
        bound(f"unix:{file}", 0)
    assert file.read_text() == "mine"
    assert stat.S_ISSOCK(os.stat(path).st_mode)


@pytest.mark.parametrize("wrong", ["unix:/no/such/folder/s", "unix:/tmp/" + "x" * 200])
def test_what_can_not_be_bound_is_said(wrong: str) -> None:
    with pytest.raises(ConfigError, match="can't listen on unix:"):
        bound(wrong, 0)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_on_a_unix_socket(tmp_path: Path, path: str, workers: str) -> None:
    write_version(tmp_path, 1)
    with served(tmp_path, "--host", f"unix:{path}", "--workers", workers) as server:
        assert f"on unix:{path}" in server.output
        assert f"--address unix:{path}" in server.output
        assert "metrics: http://127.0.0.1:" in server.output
        with grpc.insecure_channel(f"unix:{path}") as channel:
            check = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert check.status == health_pb2.HealthCheckResponse.SERVING
        with Client(f"unix:{path}") as client:
            assert client.list_models().workers == int(workers)
        listening = [c.laddr.port for c in psutil.Process(server.process.pid).net_connections("tcp") if not c.raddr]
        assert len(listening) == 1, "only the metrics"
        assert server.stop(signal.SIGTERM) == 0
        assert "Traceback" not in server.output
    assert not os.path.exists(path)
