"""`ghostless loadtest run`, `soak`, `spike` and `overload`."""

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console

from loadtest import display
from loadtest.generator.connection_pool import resolve
from loadtest.generator.plan import Checks, LoadPlan, RequestMix
from loadtest.generator.result import finite_numbers
from loadtest.generator.run import run_load
from loadtest.scenarios.overload import run_overload, saturating_plan
from loadtest.scenarios.soak import run_soak
from loadtest.scenarios.spike import SpikePlan, run_spikes

_INTERRUPTED = 130


class ArrivalsOption(StrEnum):
    POISSON = "poisson"
    CONSTANT = "constant"
    CLOSED = "closed"


Address = Annotated[str, typer.Option(help="host:port of the server.")]
Rate = Annotated[
    float, typer.Option(min=0.0, help="Requests per second to send in an open loop, however slow the server is.")
]
Duration = Annotated[float, typer.Option(help="Seconds of measured load, after the warm-up.")]
WarmUp = Annotated[float, typer.Option(help="Seconds of load before measuring starts.")]
Candidates = Annotated[str, typer.Option(help="Candidates per request: a number, or MIN-MAX for log-uniform sizes.")]
ModelName = Annotated[str, typer.Option(help="Model name. Default: the server's default model.")]
Processes = Annotated[int, typer.Option(min=1, help="Client processes that generate the load.")]
ConnectionCount = Annotated[int, typer.Option(min=1, help="Total number of connections, over all client processes.")]
Deadline = Annotated[float, typer.Option(help="Deadline of each request in ms.")]
Unknown = Annotated[float, typer.Option(help="Fraction of ids in requests that the model was not trained on.")]
Seed = Annotated[int, typer.Option(help="Random seed of arrival times and request contents.")]
MaxRequests = Annotated[int, typer.Option(min=1, help="Maximum number of requests to send.")]
Json = Annotated[
    Path | None, typer.Option("--json", help="Write the result to this file; - prints it to the terminal.")
]


def run(
    address: Address = "localhost:8500",
    rate: Rate = 0.0,
    arrivals: Annotated[
        ArrivalsOption, typer.Option(help="Arrival process: poisson or constant (open loop), or closed loop.")
    ] = (ArrivalsOption.POISSON),
    concurrency: Annotated[int, typer.Option(min=0, help="Requests in flight, for --arrivals closed.")] = 0,
    duration: Duration = 10.0,
    warm_up: WarmUp = 1.0,
    candidates: Candidates = "256",
    model: ModelName = "",
    processes: Processes = 1,
    connections: ConnectionCount = 8,
    deadline_ms: Deadline = 1000.0,
    unknown_share: Unknown = 0.05,
    checked_share: Annotated[
        float, typer.Option(help="Fraction of responses that are parsed and checked in full.")
    ] = 0.01,
    max_requests: MaxRequests = 10_000_000,
    seed: Seed = 0,
    json_path: Json = None,
) -> None:
    """Send load to a server, check its responses, and print rates and latencies.

    In an open loop, requests are sent on schedule and latency is measured from the scheduled time, so a slow server
    cannot hide its latency by slowing the load down. In a closed loop, --concurrency requests are in flight, and the
    next one is sent when a response arrives. Ctrl-C stops the load and prints the results so far.
    """
    plan = LoadPlan(
        address,
        arrivals.value,
        rate_per_s=rate,
        concurrency=concurrency,
        duration_s=duration,
        max_requests=max_requests,
        warm_up_s=warm_up,
        processes=processes,
        connections=connections,
        mix=RequestMix(model, candidates=_counts(candidates), unknown_share=unknown_share),
        deadline_s=deadline_ms / 1000,
        checks=Checks(sampled_share=checked_share),
        seed=seed,
    )
    console = _console(json_path)
    with display.live_progress(console) as progress:
        result = run_load(plan, progress)
    display.print_result(console, result)
    _finish(json_path, result.as_json(), good=not result.check_failures, interrupted=result.interrupted)


def soak(
    rate: Annotated[float, typer.Option(min=0.001, help="Requests per second to send throughout the test.")],
    address: Address = "localhost:8500",
    duration: Duration = 3600.0,
    candidates: Candidates = "50-1000",
    model: ModelName = "",
    processes: Processes = 1,
    connections: ConnectionCount = 8,
    deadline_ms: Deadline = 1000.0,
    pid: Annotated[
        list[int] | None,
        typer.Option(help="Server process to measure; repeatable. Default: local processes listening on the port."),
    ] = None,
    memory_bound: Annotated[float, typer.Option(help="Maximum allowed memory growth, as a fraction.")] = 0.02,
    latency_bound: Annotated[float, typer.Option(help="Maximum allowed latency growth, as a fraction.")] = 0.2,
    seed: Seed = 0,
    json_path: Json = None,
) -> None:
    """Run a long, steady load and track the server's memory and latency.

    Fails if memory or latency grows by more than its bound, or if a response is wrong. The first quarter of the run is
    not counted, because caches fill during it.
    """
    plan = _open_loop(address, rate, candidates, model, processes, connections, deadline_ms, seed, duration)
    console = _console(json_path)
    pids = pid or listeners(address)
    if not pids:
        console.print("no local server process found: memory is not tracked; name one with --pid", style="yellow")
    with display.live_progress(console) as progress:
        report = run_soak(plan, pids, memory_bound=memory_bound, latency_bound=latency_bound, on_progress=progress)
    display.print_soak(console, report)
    _finish(json_path, report.as_json(), good=report.ok, interrupted=report.run.interrupted)


def spike(
    rate: Annotated[float, typer.Option(min=0.001, help="Requests per second between spikes.")],
    address: Address = "localhost:8500",
    times: Annotated[float, typer.Option(min=1.0, help="Request rate during a spike, as a multiple of --rate.")] = 10.0,
    spikes: Annotated[int, typer.Option(min=1, help="Number of spikes.")] = 3,
    spike_s: Annotated[float, typer.Option(help="Length of each spike in seconds.")] = 2.0,
    rest_s: Annotated[float, typer.Option(help="Seconds at --rate before, between and after spikes.")] = 10.0,
    candidates: Candidates = "50-1000",
    model: ModelName = "",
    processes: Processes = 1,
    connections: ConnectionCount = 8,
    deadline_ms: Deadline = 1000.0,
    seed: Seed = 0,
    json_path: Json = None,
) -> None:
    """Send bursts of load; report how many requests succeed during each one and how quickly the server recovers."""
    plan = _open_loop(address, rate, candidates, model, processes, connections, deadline_ms, seed)
    console = _console(json_path)
    with display.live_progress(console) as progress:
        report = run_spikes(plan, SpikePlan(times, spikes, spike_s, rest_s), progress)
    display.print_spikes(console, report)
    _finish(json_path, report.as_json(), good=not report.run.check_failures, interrupted=report.run.interrupted)


def overload(
    address: Address = "localhost:8500",
    times: Annotated[
        float, typer.Option(min=1.0, help="Request rate to send, as a multiple of the measured peak.")
    ] = 2.0,
    duration: Annotated[float, typer.Option(help="Seconds of overload after the peak is measured.")] = 60.0,
    candidates: Candidates = "50-1000",
    model: ModelName = "",
    processes: Processes = 1,
    connections: ConnectionCount = 8,
    deadline_ms: Deadline = 1000.0,
    seed: Seed = 0,
    json_path: Json = None,
) -> None:
    """Measure the server's peak throughput, then send a multiple of it.

    Reports how many requests still succeed, how quickly the rest are rejected, and how long recovery takes.
    """
    plan = replace(
        saturating_plan(address, RequestMix(model, candidates=_counts(candidates))),
        processes=processes,
        connections=connections,
        deadline_s=deadline_ms / 1000,
        max_requests=1_000_000_000,
        seed=seed,
    )
    console = _console(json_path)
    with display.live_progress(console) as progress:
        report = run_overload(plan, times, duration, progress)
    display.print_overload(console, report)
    _finish(json_path, report.as_json(), good=not report.run.check_failures, interrupted=report.run.interrupted)


def _open_loop(
    address: str,
    rate: float,
    candidates: str,
    model: str,
    processes: int,
    connections: int,
    deadline_ms: float,
    seed: int,
    duration: float = 10.0,
) -> LoadPlan:
    return LoadPlan(
        address,
        rate_per_s=rate,
        duration_s=duration,
        processes=processes,
        connections=connections,
        mix=RequestMix(model, candidates=_counts(candidates)),
        deadline_s=deadline_ms / 1000,
        max_requests=1_000_000_000,
        seed=seed,
    )


def _counts(text: str) -> tuple[int, int]:
    fewest, _, most = text.partition("-")
    try:
        return int(fewest), int(most or fewest)
    except ValueError:
        raise typer.BadParameter(f"{text!r}; expected a number or MIN-MAX", param_hint="--candidates") from None


def listeners(address: str) -> list[int]:
    """Ids of the processes on this machine that listen on the port of a local address."""
    host, port = resolve(address)
    if not host.startswith("127.") and host != "::1":
        return []
    listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    found = {each.pid for each in listening if each.pid and port in each.laddr}
    # Workers are children of their supervisor and are measured together with it.
    return sorted(pid for pid in found if psutil.Process(pid).ppid() not in found)


def _console(json_path: Path | None) -> Console:
    """With `--json -`, standard output is the JSON and everything else goes to stderr."""
    return Console(stderr=str(json_path) == "-")


def _finish(json_path: Path | None, content: dict[str, object], good: bool, interrupted: bool) -> None:
    text = json.dumps(finite_numbers(content), indent=2, allow_nan=False)
    if str(json_path) == "-":
        print(text)
    elif json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(text + "\n")
    if interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not good:
        raise typer.Exit(1)
