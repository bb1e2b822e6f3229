"""Compares a server with all observability on with a server without any."""

import importlib.util
import queue
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.observability.paired_load import ROUND_S, PairedLoad, Share, run_rounds, share_of
from ghostless.client import Client
from ghostless.client.calls import predict_call
from loadtest.h2load import Generator
from loadtest.server_process import ServerProcess, free_port, running_server
from loadtest.workload import ServedModel

# In seconds of the observed server's running time; three times as often as in deploy/prometheus.
_SCRAPE_EVERY_S = 5.0
_OUTCOME_RATE = 0.1
# In one of this many rounds all predictions are stored, which is slightly more than that rate.
_STORED_EVERY = 9
# A request id whose prediction is stored at that rate, and one whose prediction is not.
STORED_ID, OTHER_ID = "bench 12", "bench"
_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@dataclass(frozen=True)
class Servers:
    """Two servers: `off` without metrics; `on` with metrics scraped at `scrape`, uncertainty, outcomes, acquisition
    log, access log and, if OpenTelemetry is installed, traces sent to a collector."""

    off: ServerProcess
    on: ServerProcess
    scrape: Callable[[int], None]


@contextmanager
def both_servers(repository: Path, folder: Path) -> Iterator[Servers]:
    """Start both servers. A tenth of the predictions is stored; with all of them, the store would hold less than a
    second of this load."""
    port = free_port()
    everything = ["--metrics-port", str(port), "--acquisition-log", str(folder / "acquisition")]
    everything += ["--access-log", str(folder / "access.log"), "--outcome-rate", str(_OUTCOME_RATE)]
    with ExitStack() as stack:
        if importlib.util.find_spec("opentelemetry.sdk") is not None:
            everything += ["--otlp-endpoint", f"http://{stack.enter_context(_collector())}"]
        off = stack.enter_context(running_server(repository, "--metrics-port", "0"))
        on = stack.enter_context(running_server(repository, *everything))
        yield Servers(off, on, stack.enter_context(_scraped(f"http://127.0.0.1:{port}/metrics")))


def generator(program: str, address: str, model: ServedModel, rows: int, request_id: str) -> Generator:
    drawn = model.rows(rows, seed=0)
    arguments = drawn.arguments(model.name)
    arguments["request_id"] = request_id
    with Client(address, timeout_s=10.0) as client:
        client.predict(**arguments)
    answer_bytes = 4 * sum(values.size for values in model.infer(drawn).values())
    return Generator(program, predict_call(arguments).request, answer_bytes)


def compare(load: Generator, stored: Generator, servers: Servers, folder: Path, concurrency: int, rounds: int) -> Share:
    """Throughput with everything on divided by that with metrics off. `stored` is the load whose predictions are
    stored."""
    # Both servers get the same load, although only one stores predictions.
    off, on = (PairedLoad(server, load, stored, _STORED_EVERY) for server in (servers.off, servers.on))
    return share_of(*run_rounds(off, on, folder, concurrency, rounds, servers.scrape))


@contextmanager
def _scraped(url: str) -> Iterator[Callable[[int], None]]:
    """Scrapes the metrics periodically; call the returned function in every round of the server, with its number."""
    due: queue.Queue[bool] = queue.Queue()

    def scrape() -> None:
        while due.get():
            with urllib.request.urlopen(url, timeout=10.0) as response:
                response.read()

    def on_round(number: int) -> None:
        if number % round(_SCRAPE_EVERY_S / ROUND_S) == 0:
            due.put(True)

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield on_round
    finally:
        due.put(False)
        thread.join()


@contextmanager
def _collector() -> Iterator[str]:
    """The address of an OTLP collector that accepts all traces and discards them."""

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
