"""A server with everything that can be observed switched on, beside one with nothing."""

import importlib.util
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from serving.bench.h2load import Generator
from serving.bench.server import ServerProcess, free_port, running_server
from serving.bench.workload import ServedModel
from serving.client import Client
from serving.client.calls import predict_call

# Three times as often as deploy/prometheus has it.
_SCRAPE_EVERY_S = 5.0
_OUTCOME_RATE = 0.1
# One whose prediction is kept at that rate, and one whose is not.
KEPT_ID, OTHER_ID = "bench 12", "bench"
_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@dataclass(frozen=True)
class Round:
    """Requests/s of both servers, one after the other."""

    off: float
    on: float


@contextmanager
def both_servers(repository: Path, folder: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """(off, on): without metrics; and with metrics that are scraped, uncertainty, outcomes, acquisition log, access log
    and, where OpenTelemetry is installed, traces sent to a collector.

    Predictions are kept of a tenth of the requests: of all, the store would hold less than a second of this load.
    """
    port = free_port()
    everything = ["--metrics-port", str(port), "--acquisition-log", str(folder / "acquisition")]
    everything += ["--access-log", str(folder / "access.log"), "--outcome-rate", str(_OUTCOME_RATE)]
    with ExitStack() as stack:
        if importlib.util.find_spec("opentelemetry.sdk") is not None:
            everything += ["--otlp-endpoint", f"http://{stack.enter_context(_collector())}"]
        off = stack.enter_context(running_server(repository, "--metrics-port", "0"))
        on = stack.enter_context(running_server(repository, *everything))
        stack.enter_context(_scraped(f"http://127.0.0.1:{port}/metrics"))
        yield off, on


def generator(program: str, address: str, model: ServedModel, rows: int, request_id: str) -> Generator:
    drawn = model.rows(rows, seed=0)
    arguments = drawn.arguments(model.name)
    arguments["request_id"] = request_id
    with Client(address, timeout_s=10.0) as client:
        client.predict(**arguments)
    answer_bytes = 4 * sum(values.size for values in model.infer(drawn).values())
    return Generator(program, predict_call(arguments).request, answer_bytes)


def interleaved(
    load: Generator, kept: Generator, off: str, on: str, concurrency: int, rounds: int, round_s: int
) -> Iterator[Round]:
    """Rounds on both in turn; who begins alternates too, so that a machine that slows down favours neither.

    `kept` is the load whose predictions are kept; what both take together is as if they came mixed.
    """

    def observed() -> float:
        share = _OUTCOME_RATE
        seconds = share / rate(kept, on) + (1 - share) / rate(load, on)
        return 1 / seconds

    def rate(load: Generator, address: str) -> float:
        return load.throughput(address, concurrency, round_s).requests_per_s

    for number in range(rounds):
        if number % 2:
            second, first = observed(), rate(load, off)
        else:
            first, second = rate(load, off), observed()
        yield Round(first, second)


@contextmanager
def _scraped(url: str) -> Iterator[None]:
    """Somebody reads the metrics now and then."""
    stop = threading.Event()

    def scrape() -> None:
        while not stop.wait(_SCRAPE_EVERY_S):
            with urllib.request.urlopen(url, timeout=10.0) as response:
                response.read()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _collector() -> Iterator[str]:
    """An OTLP collector that takes every trace and keeps none; its address."""

    def export(request: bytes, context: grpc.ServicerContext) -> bytes:
        return b""

    taken: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(export)
    service, method = _EXPORT.strip("/").split("/")
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: taken}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
