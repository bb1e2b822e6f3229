"""The servers that are compared, each started as its documentation recommends, and the requests sent to each."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tritonclient.grpc import service_pb2 as oip

from benchmarks.peers.raw_model import MODEL, OUTPUTS, READY, raw_request
from ghostless.client.calls import predict_call
from ghostless.v1 import prediction_pb2 as pb
from loadtest.h2load import Generator
from loadtest.server_process import BenchError, ProcessGroup, free_port, running_server
from loadtest.workload import Rows, ServedModel
from serving.dataplane.tensors import DATATYPES
from serving.engines.triton.local_server import TritonServer

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_CHECKOUT = Path(__file__).parents[2]
_MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(frozen=True)
class Target:
    """The graph that all servers use: the model and its repository."""

    repository: Path
    model: ServedModel
    logs: Path
    h2load: str

    def generator(self, message: bytes, rows: Rows) -> Generator:
        answer_bytes = sum(values.nbytes for values in self.model.infer(rows).values())
        return Generator(self.h2load, message, answer_bytes)


@dataclass(frozen=True)
class RunningServer:
    group: ProcessGroup
    address: str


@dataclass(frozen=True)
class Peer:
    """`processes`: numbers of processes to try; the one that serves more requests is used."""

    name: str
    start: Callable[[Target, int], AbstractContextManager[RunningServer]]
    load: Callable[[Target, Rows], Generator]
    processes: tuple[int, ...] = (1, 2)


@contextmanager
def _ghostless(target: Target, processes: int) -> Iterator[RunningServer]:
    """This server with default settings, so metrics are on."""
    with running_server(target.repository) as server:
        yield RunningServer(server.group, server.address)


@contextmanager
def _triton(target: Target, processes: int) -> Iterator[RunningServer]:
    server = TritonServer(target.repository, target.logs / "triton.log", models=[target.model.name])
    server.start()
    try:
        server.wait_ready()
        yield RunningServer(ProcessGroup(server.pid), server.address)
    finally:
        server.kill()


def _commands(*words: str) -> Callable[[int, int], list[list[str]]]:
    """Start the command once per process; the processes share the port."""
    return lambda port, processes: [[sys.executable, "-m", *words, str(port)]] * processes


def _uvicorn(port: int, processes: int) -> list[list[str]]:
    """Start one command, which starts its own workers."""
    options = ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off", "--no-access-log"]
    options += ["--log-level", "warning", "--host", "127.0.0.1", "--port", str(port)]
    if processes > 1:
        options += ["--workers", str(processes)]
    return [[sys.executable, "-m", "uvicorn", "benchmarks.peers.uvicorn_handler:app", *options]]


def _handler(
    commands: Callable[[int, int], list[list[str]]],
) -> Callable[[Target, int], AbstractContextManager[RunningServer]]:
    @contextmanager
    def start(target: Target, processes: int) -> Iterator[RunningServer]:
        port = free_port()
        environment = {**os.environ, MODEL: str(target.model.path.absolute()), OUTPUTS: ",".join(target.model.outputs)}
        started: list[subprocess.Popen[bytes]] = []
        log = target.logs / f"{port}.log"
        try:
            with log.open("wb") as sink:
                for command in commands(port, processes):
                    started.append(
                        subprocess.Popen(
                            command,
                            cwd=_CHECKOUT,
                            env=environment,
                            stdout=sink,
                            stderr=sink,
                            process_group=started[0].pid if started else 0,
                        )
                    )
            _wait_ready(started, port, processes, log)
            yield RunningServer(ProcessGroup(started[0].pid), f"127.0.0.1:{port}")
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                try:
                    process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    ProcessGroup(started[0].pid).send_signal(signal.SIGKILL)
                    process.wait()

    return start


def _wait_ready(started: "list[subprocess.Popen[bytes]]", port: int, processes: int, log: Path) -> None:
    """Wait until every process has loaded its model and the port is open."""
    until = time.monotonic() + READY_TIMEOUT_S
    # Not by lines: two processes that write at the same time can share one.
    while log.read_text(errors="replace").count(READY) < processes or not _is_open(port):
        if time.monotonic() > until or any(process.poll() is not None for process in started):
            last = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
            raise BenchError(f"a hand-written server is not ready; its last output: {last}")
        time.sleep(0.02)


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _predict(target: Target, rows: Rows) -> Generator:
    return target.generator(predict_call(rows.arguments(target.model.name)).request, rows)


def mean_only(target: Target, rows: Rows) -> Generator:
    """Predict with only the mean requested."""
    request = pb.PredictRequest.FromString(predict_call(rows.arguments(target.model.name)).request)
    request.outputs.append(pb.OUTPUT_MEAN)
    return Generator(target.h2load, request.SerializeToString(), 4 * len(rows))


def _raw_grpc(target: Target, rows: Rows) -> Generator:
    return target.generator(raw_request(rows), rows)


def _raw_http1(target: Target, rows: Rows) -> Generator:
    return replace(_raw_grpc(target, rows), path="/", is_http1=True)


def _model_infer(target: Target, rows: Rows) -> Generator:
    feeds = rows.feeds()
    request = oip.ModelInferRequest(model_name=target.model.name)
    for feature in target.model.features:
        request.inputs.add(name=feature.name, datatype=DATATYPES[feature.type], shape=(len(rows), 1))
        request.raw_input_contents.append(feeds[feature.name].tobytes())
    for name in target.model.outputs:
        request.outputs.add(name=name)
    return replace(target.generator(request.SerializeToString(), rows), path=_MODEL_INFER)


GHOSTLESS = Peer("Ghostless Predict", _ghostless, _predict, processes=(2,))
UVICORN = Peer("uvicorn (uvloop, httptools), raw bytes", _handler(_uvicorn), _raw_http1)
GRPC_SERVERS = (
    Peer("grpc.server, raw bytes", _handler(_commands("benchmarks.peers.grpc_handlers", "sync")), _raw_grpc),
    Peer("grpc.aio + uvloop, raw bytes", _handler(_commands("benchmarks.peers.grpc_handlers", "aio")), _raw_grpc),
)
TRITON = Peer("Triton, 2 Python-backend instances", _triton, _model_infer, processes=(2,))
