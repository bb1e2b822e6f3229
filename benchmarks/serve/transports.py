"""The comparison of transports for docs/serving-performance.md: same model, same handler, same load.

    .venv/bin/python -m benchmarks.serve.transports [--rows 256] [--rounds 5]

Each alternative runs as its own process (or two), alternating with bare ONNX Runtime, so that both sides of a ratio are
measured within seconds. CPU per request is that of server and h2load together.
"""

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil

from benchmarks.peers.grpc_handlers import AnyMethod
from ghostless.v1 import prediction_pb2 as pb
from loadtest.bare_session import bare_cores
from loadtest.h2load import Generator, find_h2load
from loadtest.server_process import free_port, running_server
from serving.config import ServeConfig
from serving.dataplane.pipeline import Pipeline, RequestLimits
from serving.dataplane.validation import PredictRequest
from serving.engines.interface import NO_DEADLINE, run_until_idle
from serving.server import embedded_engine
from serving.telemetry.record import CallRecord
from tests.support.onnx_models import QR_OUTPUTS, REALISTIC, write_version

# Name: (kind of server, processes, threads or slots per process).
ALTERNATIVES = {
    "grpc.server, 4 threads": ("sync", 1, 4),
    "grpc.server, 2 threads, 2 processes": ("sync", 2, 2),
    "grpc.aio, executor": ("aio-executor", 1, 2),
    "grpc.aio + uvloop, executor": ("uvloop-executor", 1, 2),
    "grpc.aio + uvloop, inline, 2 processes": ("uvloop-inline", 2, 1),
    "ghostless serve, 1 worker with 2 slots": ("own", 1, 2),
    "ghostless serve, 2 workers": ("own", 2, 1),
}
SECONDS = 2


class BlockingCall:
    """Receives the response of the pipeline, for a transport whose handler must return it."""

    deadline = NO_DEADLINE

    def __init__(self) -> None:
        self.record = CallRecord("Predict", 0.0)
        self._done = threading.Event()
        self._message = b""

    def answer(self, message: bytes) -> None:
        self._message = message
        self._done.set()

    def fail(self, error: Exception) -> None:
        raise error

    def watch(self, on_cancelled: object) -> None:
        """Ignored: these measurements cancel nothing."""

    def result(self) -> bytes:
        self._done.wait()
        return self._message


def serve(kind: str, repository: Path, port: int, threads: int) -> None:
    slots = 2 if "executor" in kind or threads > 2 else threads
    config = ServeConfig(repository=repository, host="127.0.0.1", port=port, slots=slots)
    engine = embedded_engine(config)
    handler = Pipeline(engine, RequestLimits()).door(PredictRequest)

    def answer(message: bytes, context: object = None) -> bytes:
        call = BlockingCall()
        handler(message, call)  # type: ignore[arg-type]  # it has what the handler uses
        run_until_idle(engine)
        return call.result()

    options = [("grpc.so_reuseport", 1)]
    if kind == "sync":
        server = grpc.server(ThreadPoolExecutor(threads), handlers=[AnyMethod(answer)], options=options)
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        print("ready", flush=True)
        server.wait_for_termination()
    if kind.startswith("uvloop"):
        import uvloop

        uvloop.install()
    asyncio.run(_serve_aio(answer, port, threads if "executor" in kind else 0, options))


async def _serve_aio(answer: Any, port: int, threads: int, options: list[tuple[str, int]]) -> None:
    pool = ThreadPoolExecutor(threads) if threads else None
    loop = asyncio.get_running_loop()

    async def behaviour(message: bytes, context: object) -> bytes:
        answered: bytes = await loop.run_in_executor(pool, answer, message) if pool else answer(message)
        return answered

    server = grpc.aio.server(handlers=[AnyMethod(behaviour)], options=options)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


def measure(rows: int, rounds: int, repository: Path) -> None:
    file = write_version(repository, 1, REALISTIC) / "model.onnx"
    random = np.random.default_rng(0)
    request = pb.PredictRequest()
    request.context["user_id"].int64s.values.append(7)
    request.candidates["item_id"].int64s.values.extend(random.integers(0, 50_000, rows).tolist())
    request.candidates["duration"].floats.values.extend(random.uniform(0, 60, rows).tolist())
    feeds = {
        "user_id": np.full(rows, 7),
        "item_id": np.array(request.candidates["item_id"].int64s.values),
        "duration": np.array(request.candidates["duration"].floats.values, np.float32),
    }
    generator = Generator(find_h2load(), request.SerializeToString(), answer_bytes=rows * 4)
    outputs = [output for output in QR_OUTPUTS if output != "cdf"]
    ratios: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ALTERNATIVES}
    with bare_cores(file, outputs) as bare:
        for _ in range(rounds):
            for name, (kind, processes, threads) in ALTERNATIVES.items():
                rate, cpu_ms = _load(generator, kind, processes, threads, repository)
                bare_rate = bare.rows_per_s(feeds, SECONDS) / rows
                ratios[name].append((rate, rate / bare_rate, cpu_ms))
    print(f"{rows} rows, concurrency 8, median of {rounds} rounds: requests/s, share of bare, CPU ms/request")
    for name, figures in ratios.items():
        rate, share, cpu_ms = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"| {name} | {rate:,.0f} | {share:.0%} | {cpu_ms:.2f} |")


def _load(generator: Generator, kind: str, processes: int, threads: int, repository: Path) -> tuple[float, float]:
    if kind == "own":
        options = ("--workers", str(processes), "--slots", str(threads), "--metrics-port", "0")
        with running_server(repository, *options) as own:
            return _measure(generator, own.port, [own.process])
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.serve.transports", "--serve", kind]
    command += ["--repository", str(repository), "--port", str(port), "--threads", str(threads)]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for server in servers:
            assert server.stdout is not None
            server.stdout.readline()
        return _measure(generator, port, servers)
    finally:
        for server in servers:
            server.kill()
            server.wait()


def _measure(generator: Generator, port: int, servers: list[subprocess.Popen[bytes]]) -> tuple[float, float]:
    before = _cpu_s(servers)
    load = generator.throughput(f"127.0.0.1:{port}", concurrency=8, seconds=SECONDS)
    # h2load's warm-up of one second uses CPU too, at the same rate.
    spent = (_cpu_s(servers) - before) * SECONDS / (SECONDS + 1)
    return load.requests_per_s, spent / (load.requests_per_s * SECONDS) * 1000


def _cpu_s(servers: list[subprocess.Popen[bytes]]) -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    processes = [psutil.Process(server.pid) for server in servers]
    everyone = [each for process in processes for each in (process, *process.children())]
    own = sum(sum(process.cpu_times()[:2]) for process in everyone)
    return float(own + children.ru_utime + children.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", default="")
    parser.add_argument("--repository", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.repository, arguments.port, arguments.threads)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(arguments.rows, arguments.rounds, Path(folder))


if __name__ == "__main__":
    main()
