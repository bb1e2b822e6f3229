"""The whole server as a process: ready, healthy, reflecting, reloading under load, draining on a signal."""

import json
import shlex
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import grpc
import onnx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ghostless.contract import repository
from ghostless.v1 import prediction_pb2 as pb
from serving.engines.batcher import BatchLimits
from tests.support.grpc_calls import stub_on
from tests.support.onnx_models import REALISTIC, SMALL, Recipe, build, write_version
from tests.support.processes import ROOT, served
from tests.support.running import FakeEngine, predict_request, serving, serving_repository
from tests.support.scrape import metrics_url, total
from tests.support.waiting import eventually

SERVING = health_pb2.HealthCheckResponse.SERVING


def _publish(root: Path, recipe: Recipe) -> int:
    with repository.staging(root, "demo") as directory:
        onnx.save(build(recipe), directory / "model.onnx")
        return repository.publish(root, "demo", directory)


def test_ready_in_time_healthy_and_stopped_with_status_0(tmp_path: Path) -> None:
    write_version(tmp_path, 1, REALISTIC)
    with served(tmp_path) as server:
        assert server.seconds_to_ready < 10, "3 s on a quiet machine; `ghostless bench serve` holds it to that"
        with grpc.insecure_channel(server.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "ghostless.v1.PredictionService", "inference.GRPCInferenceService"):
                checked = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
                assert checked.status == SERVING
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            asked = reflection_pb2.ServerReflectionRequest(list_services="")
            answer = next(reflection.ServerReflectionInfo(iter([asked]), timeout=5))
            assert {s.name for s in answer.list_services_response.service} == {
                "ghostless.v1.PredictionService",
                "inference.GRPCInferenceService",
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
            }
        assert server.stop() == 0
        assert "drained" in server.output


@pytest.mark.parametrize("recipe", [SMALL, Recipe(head="qr", cells=12)])
def test_the_printed_call_works_when_pasted(tmp_path: Path, recipe: Recipe) -> None:
    write_version(tmp_path, 1, recipe)
    with served(tmp_path) as server:
        line = next(line for line in server.lines if " predict " in line)
        words = shlex.split(line)
        assert words[0].endswith("ghostless")
        run = subprocess.run(
            [sys.executable, "-m", "ghostless", *words[1:], "--format", "json"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_calls_in_flight_finish(tmp_path: Path, number: int) -> None:
    write_version(tmp_path, 1, Recipe(hidden=(256,), repeats=600))  # seconds a call, so that a gauge sees them wait
    with (
        served(tmp_path, "--drain-s", "50", "--deadline-ms", "0", "--slots", "1") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = stub_on(channel)
        calls = [stub.Predict.future(predict_request(3000), timeout=60) for _ in range(4)]
        eventually(lambda: total(metrics_url(server), "queue_rows") >= 3000, "a call that runs and others that wait")
        assert not all(call.done() for call in calls)
        assert server.stop(number) == 0
        assert [call.result(timeout=1).rows for call in calls] == [3000] * 4


class LateEngine(FakeEngine):
    """Not ready when the server starts, ready before anything looks again."""

    asked = 0

    def is_ready(self) -> bool:
        self.asked += 1
        return self.asked > 1


def test_an_engine_that_becomes_ready_while_the_server_starts_is_reported() -> None:
    with serving(LateEngine(BatchLimits(16, 64, 1))) as running:
        health = health_pb2_grpc.HealthStub(running.channel)
        eventually(lambda: health.Check(health_pb2.HealthCheckRequest(), timeout=2).status == SERVING, "ready")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_not_ready_comes_before_refusing(tmp_path: Path, workers: str) -> None:
    write_version(tmp_path, 1)
    with (
        served(tmp_path, "--drain-delay-s", "1", "--workers", workers) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("draining")
        health = health_pb2_grpc.HealthStub(channel)
        eventually(lambda: health.Check(health_pb2.HealthCheckRequest(), timeout=2).status != SERVING, "not ready")
        assert stub_on(channel).Predict(predict_request(2), timeout=2).rows == 2
        with grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as late:
            assert stub_on(late).Predict(predict_request(2), timeout=2).rows == 2
        assert server.process.wait(10) == 0


def test_hot_reload_under_load_loses_no_request(tmp_path: Path) -> None:
    """Good and broken versions come while clients keep asking; every answer is a good version's own."""
    write_version(tmp_path, 1, Recipe(seed=1))
    means: dict[int, set[tuple[float, ...]]] = {}
    failures: list[str] = []
    answers = 0
    stop = threading.Event()
    request = predict_request(5)

    with serving_repository(tmp_path, poll_s=0.02) as running:

        def states() -> dict[int, pb.Model.State]:
            return {v.version: v.state for v in running.stub.GetModel(pb.GetModelRequest(), timeout=5).versions}

        def is_judged(version: int) -> bool:
            return version in means or states().get(version) == pb.Model.FAILED

        def ask() -> None:
            nonlocal answers
            while not stop.is_set():
                try:
                    answer = running.stub.Predict(request, timeout=10)
                    means.setdefault(answer.version, set()).add(tuple(round(m, 4) for m in answer.mean))
                    answers += 1
                except grpc.RpcError as error:
                    failures.append(str(error))

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        for version in range(2, 7):
            broken = version % 2 == 0
            assert _publish(tmp_path, Recipe(seed=version, mean_factor=float("nan") if broken else 1.0)) == version
            eventually(partial(is_judged, version), f"version {version}")
        repository.rollback(tmp_path, "demo")  # from 6, which is broken, to 5
        goal = answers + 200
        eventually(lambda: answers >= goal, "answers after the rollback")
        stop.set()
        for client in clients:
            client.join()
        final = states()

    assert failures == []
    assert set(means) == {1, 3, 5}, "broken versions never answered, good ones all did"
    assert all(len(answers) == 1 for answers in means.values()), "each version gave its own answer only"
    assert final[5] == pb.Model.READY
    assert final[6] == pb.Model.FAILED


def test_it_starts_where_torch_learning_and_export_are_not_installed(tmp_path: Path) -> None:
    write_version(tmp_path / "repository", 1)
    script = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "learning", "export", "onnx", "onnxscript", "matplotlib", "scipy"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import pathlib, pkgutil, importlib
import grpc
import serving
from serving.config import ServeConfig
from serving.server import Server, embedded_engine
from ghostless.v1 import prediction_pb2 as pb, prediction_pb2_grpc as pb_grpc

config = ServeConfig(repository=pathlib.Path(sys.argv[1]), host="127.0.0.1", port=0)
server = Server(config, embedded_engine(config))
with grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel:
    request = pb.PredictRequest.FromString(bytes.fromhex(sys.argv[2]))
    print(pb_grpc.PredictionServiceStub(channel).Predict(request, timeout=5).rows)
server.stop()
commands = ("ghostless.commands.models", "ghostless.commands.predict")
for module in ("serving.cli", "serving.workers", "ghostless", *commands):
    importlib.import_module(module)
"""
    request = predict_request(4).SerializeToString().hex()
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "repository"), request],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "4"


@pytest.mark.parametrize(
    ("make", "flags", "complaint"),
    [
        (False, (), "error: {root} has no model that can be served: export one"),
        (True, ("--default-model", "other"), "has no model 'other' that can be served"),
        (True, ("--port", "99999"), "error: port = 99999"),
        (True, ("--queue-rows", "0"), "error: queue_rows = 0"),
    ],
)
def test_what_can_not_be_served_is_one_clear_line(
    tmp_path: Path, make: bool, flags: tuple[str, ...], complaint: str
) -> None:
    if make:
        write_version(tmp_path, 1)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "ghostless",
            "serve",
            "--repository",
            str(tmp_path),
            "--port",
            "0",
            *flags,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 1
    assert complaint.format(root=tmp_path) in run.stderr
    assert "Traceback" not in run.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    with serving_repository(tmp_path) as running:
        for workers in ("1", "2"):
            command = [
                sys.executable,
                "-m",
                "ghostless",
                "serve",
                "--repository",
                str(tmp_path),
                "--workers",
                workers,
            ]
            command += ["--host", "127.0.0.1", "--port", str(running.port), "--metrics-port", "0"]
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
            assert run.returncode == 1
            assert f"can't listen on 127.0.0.1:{running.port}" in run.stderr
