"""`ghostless triton`: starts Triton servers on this machine."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from serving.engines.triton.local_server import Ports, TritonServer
from serving.stop_signal import StopSignal

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Start Triton servers on this machine."""


@app.command()
def up(
    root: Annotated[
        Path, typer.Option("--repository", envvar="GHOSTLESS_REPOSITORY", help="Folder with the models to serve.")
    ] = Path("model_repository"),
    instances: Annotated[int, typer.Option(min=1, help="Number of Triton servers to start.")] = 1,
    logs: Annotated[Path, typer.Option(help="Folder for the Triton logs, one file per server.")] = Path("runs/triton"),
    grpc_port: Annotated[
        int, typer.Option(help="gRPC port of the first server; others count up. 0 picks free ports.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print addresses and process ids as one line of JSON.")
    ] = False,
) -> None:
    """Start Triton servers on loopback, with the repository's models on the Python backend, until Ctrl-C."""
    stop = StopSignal()
    servers = []
    for index in range(instances):
        ports = Ports.free()
        if grpc_port:
            ports = Ports(grpc_port + index, ports.http, ports.metrics)
        servers.append(TritonServer(root, logs / f"triton-{index}.log", ports))
    with ExitStack() as stack:
        for server in servers:
            server.start()
            stack.callback(server.stop)
        for server in servers:
            server.wait_ready()
        _announce(servers, logs, as_json)
        gone: set[int] = set()
        while not stop.wait(0.5) and len(gone) < len(servers):
            for server in servers:
                if not server.running and server.pid not in gone:
                    gone.add(server.pid)
                    Console(stderr=True).print(f"Triton {server.address} ended; its log is in {logs}")


def _announce(servers: list[TritonServer], logs: Path, as_json: bool) -> None:
    if as_json:
        content = [
            {"address": s.address, "http": s.ports.http, "metrics": s.ports.metrics, "pid": s.pid} for s in servers
        ]
        typer.echo(json.dumps({"servers": content, "logs": str(logs)}))
        return
    console = Console(highlight=False, soft_wrap=True, markup=False)
    addresses = ",".join(server.address for server in servers)
    console.print(f"ready: {len(servers)} Triton at {addresses}, logs in {logs}")
    console.print(f"start a Ghostless server for it:\n  ghostless serve --engine triton --triton {addresses}")
