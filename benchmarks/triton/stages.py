"""The stages of `ghostless bench triton`; each adds its figures with their bounds."""

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from tritonclient.grpc import service_pb2 as oip
from tritonclient.grpc import service_pb2_grpc

from benchmarks.serve.direct import measure_triton
from benchmarks.serve.stages import CONCURRENCY, ServeBench
from benchmarks.serve.steady_clients import SteadyClients
from ghostless.client import CallError, Client, RetryPolicy
from ghostless.contract import repository
from loadtest.server_process import ServerProcess, running_server
from loadtest.workload import ServedModel
from serving.engines.triton.control import put_in_service
from serving.engines.triton.local_server import TritonServer

CANDIDATES = 256
KILL_REQUESTS = 20_000
KILL_CANDIDATES = 16
# Long enough for the facade to poll every Triton again.
_NOTICED_S = 1.5


@dataclass(frozen=True)
class Tritons:
    """Tritons and a facade for them, with their own repository that has two equal versions of the model."""

    root: Path
    model: str
    versions: tuple[int, int]
    servers: list[TritonServer]
    facade: ServerProcess

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]


@contextmanager
def running_tritons(source: Path, model: ServedModel, folder: Path, count: int) -> Iterator[Tritons]:
    entry = repository.find(source, model.name)
    first = entry.in_service
    root = folder / f"repository-{count}"
    target = root / entry.name
    target.mkdir(parents=True)
    for version in (first, first + 1):
        shutil.copytree(entry.path / str(first), target / str(version))
    shutil.copy(entry.path / "config.pbtxt", target)
    shutil.copytree(entry.path / "configs", target / "configs")
    repository.promote(root, entry.name, first)
    with ExitStack() as stack:
        servers = [TritonServer(root, folder / f"triton-{count}-{index}.log") for index in range(count)]
        for server in servers:
            server.start()
            stack.callback(server.kill)
        for server in servers:
            server.wait_ready()
        addresses = ",".join(server.address for server in servers)
        # No server-side deadline: the clients set their own, and their failures are counted.
        options = ("--engine", "triton", "--triton", addresses, "--deadline-ms", "0", "--metrics-port", "0")
        facade = stack.enter_context(running_server(root, *options))
        yield Tritons(root, entry.name, (first, first + 1), servers, facade)


def measure_overhead(bench: ServeBench, tritons: Tritons, program: str) -> None:
    triton, facade = tritons.addresses[0], tritons.facade.address
    bench.say(f"facade + Triton, compared with perf_analyzer on the same Triton, {CANDIDATES} candidates")
    generator = bench.generator(facade, bench.model.rows(CANDIDATES, seed=0))
    shares, over_ms = [], []
    requests = 250 * bench.plan.round_s
    for _ in range(bench.plan.rounds):
        direct = measure_triton(
            program, tritons.model, triton, rows=CANDIDATES, concurrency=CONCURRENCY, requests=requests
        )
        served = generator.throughput(facade, CONCURRENCY, bench.plan.round_s).requests_per_s * CANDIDATES
        bench.say(f"  Triton {direct.rows_per_s:,.0f} rows/s, facade + Triton {served:,.0f} rows/s")
        shares.append(served / direct.rows_per_s)
        alone = measure_triton(program, tritons.model, triton, rows=CANDIDATES, concurrency=1, requests=requests)
        p50_ms = 1000 * generator.median_latency_s(facade, bench.plan.latency_requests)
        bench.say(f"  p50 at concurrency 1: Triton {alone.p50_ms:.3f} ms, facade + Triton {p50_ms:.3f} ms")
        over_ms.append(p50_ms - alone.p50_ms)
    bench.figures.add(
        "rows/s of facade + Triton, relative to Triton alone", statistics.median(shares), ">= 0.75", samples=shares
    )
    bench.figures.add(
        "p50 above Triton alone at concurrency 1, ms", statistics.median(over_ms), "<= 1.5", samples=over_ms
    )


def compare_transports(bench: ServeBench, tritons: Tritons, program: str) -> None:
    """Print the measurement behind the choice of raw tensors over gRPC (docs/triton.md). It has no bound."""
    bench.say(f"transports to Triton, {CANDIDATES} candidates, concurrency {CONCURRENCY}")
    for kind in ("none", "system"):
        rates = [
            measure_triton(
                program,
                tritons.model,
                tritons.addresses[0],
                rows=CANDIDATES,
                concurrency=CONCURRENCY,
                requests=250 * bench.plan.round_s,
                shared_memory="system" if kind == "system" else "none",
            ).rows_per_s
            for _ in range(bench.plan.rounds)
        ]
        name = "gRPC raw tensors" if kind == "none" else "system shared memory"
        bench.say(f"  {name}: {statistics.median(rates):,.0f} rows/s")


def measure_kill(bench: ServeBench, tritons: Tritons) -> None:
    victim = tritons.servers[0]
    bench.say(f"one of two Tritons killed under load and restarted, {KILL_REQUESTS:,} requests")
    with SteadyClients(tritons.facade.address, bench.model, CONCURRENCY, KILL_CANDIDATES) as load:
        load.until(KILL_REQUESTS // 4)
        victim.kill()
        load.until(KILL_REQUESTS // 2)
        victim.start()
        victim.wait_ready()
        time.sleep(_NOTICED_S)
        back = _answered(victim, tritons.model)
        load.until(max(KILL_REQUESTS, load.answers + KILL_REQUESTS // 4))
    for failure in load.failures[:3]:
        bench.say(f"  {failure}")
    bench.figures.add("requests while a Triton was killed and restarted", load.answers, f">= {KILL_REQUESTS}")
    bench.figures.add("failed requests while a Triton was killed and restarted", len(load.failures), "== 0")
    bench.figures.add("requests on the restarted Triton", _answered(victim, tritons.model) - back, "> 0")


def measure_outage(bench: ServeBench, tritons: Tritons) -> None:
    bench.say("all Tritons down, then back")
    arguments = bench.model.rows(KILL_CANDIDATES, seed=0).arguments(tritons.model)
    with Client(tritons.facade.address, timeout_s=5.0, retry=RetryPolicy(max_attempts=1)) as client:
        for server in tritons.servers:
            server.kill()
        time.sleep(_NOTICED_S)
        began = time.monotonic()
        try:
            client.predict(**arguments)
            code = "OK"
        except CallError as error:
            code = str(error.code.name)
        bench.figures.add("all Tritons down: responses other than UNAVAILABLE", code != "UNAVAILABLE", "== 0")
        bench.figures.add("all Tritons down: time to UNAVAILABLE, ms", 1000 * (time.monotonic() - began), "<= 100")
        for server in tritons.servers:
            server.start()
        for server in tritons.servers:
            server.wait_ready()
        began = time.monotonic()
        while not _answers(client, arguments):
            if time.monotonic() - began > 30:
                break
            time.sleep(0.02)
        bench.figures.add("all Tritons ready again: time to the first response, s", time.monotonic() - began, "<= 3")


def measure_rollout(bench: ServeBench, tritons: Tritons) -> None:
    first, second = tritons.versions
    bench.say(f"version {second} rolled out on both Tritons under load, and back")
    with SteadyClients(tritons.facade.address, bench.model, CONCURRENCY, KILL_CANDIDATES) as load:
        load.until(500)
        for version in (second, first):
            put_in_service(tritons.addresses, repository.find(tritons.root, tritons.model), version)
            repository.promote(tritons.root, tritons.model, version)
            load.until_version(version)
            load.until(load.answers + 500)
    for failure in load.failures[:3]:
        bench.say(f"  {failure}")
    bench.figures.add("failed requests during roll-out and roll-back", len(load.failures), "== 0")
    bench.figures.add("version changes that a client saw, maximum", max(log.switches for log in load.logs), "== 2")


def _answers(client: Client, arguments: object) -> bool:
    try:
        client.predict(**arguments)  # type: ignore[arg-type]  # PredictArguments
    except CallError:
        return False
    return True


def _answered(server: TritonServer, model: str) -> int:
    with grpc.insecure_channel(server.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        statistics_ = stub.ModelStatistics(oip.ModelStatisticsRequest(name=model), timeout=5)
    return sum(int(each.inference_stats.success.count) for each in statistics_.model_stats)
