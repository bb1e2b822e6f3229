"""`ghostless bench console`: what the console costs the workers, and how HTTP answers valid and invalid requests."""

import http.client
import json
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.demo_model import DEFAULT_REPOSITORY, find_or_make_model
from ghostless.client import Client
from ghostless.client.calls import predict_call
from loadtest.figures import Figures
from loadtest.h2load import Generator, find_h2load
from loadtest.server_process import ProcessGroup, ServerProcess, free_port, running_server
from loadtest.workload import Rows, ServedModel

ROWS = 256
CONCURRENCY = 8
# The path that the busiest page polls every 5 s; this bench polls it twice as often.
_POLLED = "/console/api/live"
_POLL_S = 2.5
_MAX_PAGE_BYTES = 1_500_000
_HTTP_CALLS = 200


@dataclass(frozen=True)
class ConsolePlan:
    """How long to measure. Bounds are not part of it: they are the same for every plan."""

    rounds: int
    round_requests: int
    random_requests: int


FULL = ConsolePlan(rounds=24, round_requests=10_000, random_requests=5_000)
QUICK = ConsolePlan(rounds=5, round_requests=6_000, random_requests=1_000)


@dataclass(frozen=True)
class Http:
    """Calls the operations port on one connection."""

    connection: http.client.HTTPConnection

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self.connection.request(method, path, body)
        answer = self.connection.getresponse()
        return answer.status, answer.read()


def bench(
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run shorter rounds, with the same bounds.")] = False,
    repository: Annotated[Path, typer.Option(help="Model repository to serve.")] = DEFAULT_REPOSITORY,
    model: Annotated[str, typer.Option(help="Model in the repository to use. Default: the first by name.")] = "",
) -> None:
    """Measure what an open console costs the workers, and check HTTP's answers against gRPC's."""
    figures = Figures("ghostless bench console")
    plan = QUICK if quick else FULL
    served = find_or_make_model(repository, model, figures.console)
    port = free_port()
    with running_server(repository, "--metrics-port", str(port), "--workers", "2") as server:
        call = Http(http.client.HTTPConnection("127.0.0.1", port, timeout=60)).call
        measure_weight(figures, call)
        measure_equality(figures, call, server, served)
        measure_random_requests(figures, call, served, plan)
        measure_cost(figures, server, served, plan, port)
    figures.finish(json_path)


def measure_weight(figures: Figures, call: Any) -> None:
    """Size of the first page with all its files, as they are sent."""
    page = call("GET", "/")[1]
    files = [b"/console/" + part.partition(b'"')[0] for part in page.split(b'"/console/')[1:]]
    modules = {"/console/app.js"}
    while True:
        texts = {path: call("GET", path)[1] for path in modules}
        found = {
            f"/console/{part.split(chr(34))[0]}"
            for text in texts.values()
            for part in text.decode().split('"/console/')[1:]
        }
        found = {path for path in found if path.endswith(".js")}
        if found <= modules:
            break
        modules |= found
    paths = modules | {path.decode() for path in files}
    size = len(page) + sum(len(call("GET", path)[1]) for path in paths)
    figures.add("bytes of the first page with all its files", size, f"<= {_MAX_PAGE_BYTES}")


def measure_equality(figures: Figures, call: Any, server: ServerProcess, model: ServedModel) -> None:
    different, times = 0, []
    with Client(server.address, timeout_s=10.0) as client:
        for seed in range(_HTTP_CALLS):
            rows = model.rows(ROWS, seed)
            expected = client.predict(**rows.arguments(model.name))
            body = json.dumps(content_of(rows, model)).encode()
            began = time.perf_counter()
            status, answer = call("POST", "/v1/predict", body)
            times.append(1000 * (time.perf_counter() - began))
            got = json.loads(answer) if status == 200 else {}
            pairs = (
                (got.get("mean"), expected.mean),
                (got.get("quantiles", {}).get("values"), expected.quantiles),
                (got.get("bins", {}).get("probabilities"), expected.bins),
                (got.get("uncertainty", {}).get("epistemic"), expected.epistemic),
            )
            different += any(
                np.asarray(one, np.float32).tobytes() != np.ascontiguousarray(other, np.float32).tobytes()
                for one, other in pairs
                if other is not None
            )
    figures.add(f"answers of {_HTTP_CALLS} over HTTP that differ from gRPC's in a bit", different, "== 0")
    figures.add(
        f"ms of a call over HTTP, {ROWS} rows with all outputs", statistics.median(times), "<= 50", samples=times
    )


def measure_random_requests(figures: Figures, call: Any, model: ServedModel, plan: ConsolePlan) -> None:
    """Requests that are wrong in random places must be rejected as client errors, not as server errors."""
    drawn, failed, answered = random.Random(0), 0, 0
    paths = list(json.loads(call("GET", "/openapi.json")[1])["paths"].items())
    for number in range(plan.random_requests):
        path, methods = drawn.choice(paths)
        method = drawn.choice(list(methods)).upper()
        content = content_of(model.rows(2, number), model)
        if "infer" in path:
            content = {
                "inputs": [
                    {"name": name, "shape": [1], "datatype": "INT64", "data": [1]} for name in content["context"]
                ]
            }
        body = json.dumps(mutated(content, drawn)).encode() if method == "POST" else None
        target = path.format(
            name=drawn.choice([model.name, "x", "%2e%2e"]), version=drawn.choice(["1", "-1", "x", "9" * 30])
        )
        status, _ = call(method, target, body)
        failed += status >= 500
        answered += status == 200
    figures.add(f"answers 5xx to {plan.random_requests} random requests", failed, "== 0")
    figures.add("share of random requests that were answered", answered / plan.random_requests, ">= 0.1")


def mutated(content: Any, drawn: random.Random) -> Any:
    """The content with some values replaced by values of another kind."""
    if drawn.random() < 0.08:
        return drawn.choice(
            [None, True, -1, 1.5, 1e300, 1 << 70, "", "\u0000", "x" * 300, [], {}, [[1]], {"values": 1}]
        )
    if isinstance(content, dict):
        return {(key if drawn.random() > 0.03 else "other"): mutated(value, drawn) for key, value in content.items()}
    return [mutated(value, drawn) for value in content] if isinstance(content, list) else content


def measure_cost(figures: Figures, server: ServerProcess, model: ServedModel, plan: ConsolePlan, port: int) -> None:
    figures.console.print(f"CPU of the workers per request with the console closed and open; {plan.rounds} rounds")
    rows = model.rows(ROWS, seed=0)
    answer_bytes = 4 * sum(values.size for values in model.infer(rows).values())
    load = Generator(find_h2load(), predict_call(rows.arguments(model.name)).request, answer_bytes)
    workers = worker_processes(server.group)
    cost_us(server, workers, load, plan)  # warm
    ratios = []
    for number in range(plan.rounds):
        costs = {False: 0.0, True: 0.0}
        # Closed, open, open, closed, or the reverse, so that a machine that slows down over time cancels out.
        first = bool(number % 2)
        for is_open in (first, not first, not first, first):
            with polled(port, is_open):
                costs[is_open] += cost_us(server, workers, load, plan)
        ratios.append(costs[True] / costs[False])
    name = f"CPU of the workers per request at {ROWS} rows: console open over closed"
    figures.add(name, statistics.median(ratios), "<= 1.02", samples=ratios)


def cost_us(server: ServerProcess, workers: list[int], load: Generator, plan: ConsolePlan) -> float:
    before = cpu_s(workers)
    load.requests(server.address, CONCURRENCY, plan.round_requests)
    return 1e6 * (cpu_s(workers) - before) / plan.round_requests


def cpu_s(processes: list[int]) -> float:
    """User and system time, from each process's CPU clock."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in processes)


def worker_processes(group: ProcessGroup) -> list[int]:
    """The group without its leader and the console's process."""
    found = []
    for pid in group.processes():
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if pid != group.leader and b"serving.console" not in command:
            found.append(pid)
    return found


@contextmanager
def polled(port: int, is_open: bool) -> Iterator[None]:
    """Make the calls of an open page while the block runs."""
    stop = threading.Event()

    def poll() -> None:
        call = Http(http.client.HTTPConnection("127.0.0.1", port, timeout=60)).call
        while not stop.is_set():
            call("GET", _POLLED)
            stop.wait(_POLL_S)

    thread = threading.Thread(target=poll)
    if is_open:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if is_open:
            thread.join()


def content_of(rows: Rows, model: ServedModel) -> dict[str, Any]:
    return {
        "model": model.name,
        "context": {name: values.tolist() for name, values in rows.context.items()},
        "candidates": {name: values.tolist() for name, values in rows.candidates.items()},
    }
