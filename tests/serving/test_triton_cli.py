"""`ghostless triton up` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2 as oip
from tritonclient.grpc import service_pb2_grpc
from typer.testing import CliRunner

from ghostless.contract.errors import ConfigError, RepositoryError
from ghostless.v1 import prediction_pb2 as pb
from serving import triton_cli
from serving.engines.triton import local_server as triton_server
from tests.support.grpc_calls import stub_on
from tests.support.onnx_models import SMALL, write_version
from tests.support.processes import served
from tests.support.running import predict_request
from tests.support.tritons import add_triton_files, require_triton


def test_up_starts_servers_says_where_and_stops_them_cleanly(tmp_path: Path) -> None:
    require_triton()
    root, logs = tmp_path / "repository", tmp_path / "logs"
    write_version(root, 1, SMALL)
    add_triton_files(root)
    command = [sys.executable, "-m", "ghostless", "triton", "up", "--json", "--instances", "2"]
    command += ["--repository", str(root), "--logs", str(logs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        servers = json.loads(process.stdout.readline())["servers"]
        for server in servers:
            with grpc.insecure_channel(server["address"]) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                assert stub.ModelReady(oip.ModelReadyRequest(name="demo", version="1"), timeout=5).ready
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    for index, server in enumerate(servers):
        with pytest.raises(ProcessLookupError):
            os.kill(server["pid"], 0)
        assert "successfully unloaded 'demo'" in (logs / f"triton-{index}.log").read_text()


def test_the_facade_waits_for_triton_and_needs_no_repository(tmp_path: Path) -> None:
    require_triton()
    root = tmp_path / "repository"
    write_version(root, 1, SMALL)
    add_triton_files(root)
    server = triton_server.TritonServer(root, tmp_path / "log")
    starting = threading.Timer(2.0, server.start)
    starting.start()
    try:
        # It prints that it is ready only once Triton is, which starts after it.
        flags = ("--engine", "triton", "--triton", server.address, "--workers", "2")
        with served(tmp_path / "nowhere", *flags) as facade, grpc.insecure_channel(facade.address) as channel:
            assert f"serving Triton {server.address}" in facade.output
            stub = stub_on(channel)
            assert stub.Predict(predict_request(5), timeout=5).rows == 5
            described = stub.GetModel(pb.GetModelRequest(), timeout=5)
            assert (described.name, described.head) == ("demo", "cr")
    finally:
        starting.join()
        server.kill()


def test_a_repository_without_triton_files_is_named(tmp_path: Path) -> None:
    write_version(tmp_path, 1, SMALL)
    refused = CliRunner().invoke(triton_cli.app, ["up", "--repository", str(tmp_path)])
    assert isinstance(refused.exception, RepositoryError)
    assert "ghostless export" in str(refused.exception)


def test_a_missing_binary_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(triton_server, "_BUILT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="make triton"):
        triton_server.find_binary()
