"""Starts a server for each variant on the server's cores: a facade and, with `triton`, a Triton for it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loadtest.compare.batch_counts import BatchCounter
from loadtest.compare.cores import on_cores
from loadtest.compare.variants import Variant
from loadtest.server_process import running_server
from serving.engines.triton.local_server import TritonServer

EngineName = Literal["embedded", "triton"]
# The generator's deadline is the only one. Uncertainty metrics and stored predictions are off: they cost the same for
# all variants (see `ghostless bench observability`), and one variant has no uncertainty.
_OPTIONS = ("--host", "127.0.0.1", "--deadline-ms", "0", "--uncertainty-rate", "0", "--outcome-store-mb", "0")


@dataclass(frozen=True)
class RunningVariant:
    """A variant that is being served. `pids` are the roots of its server's process trees."""

    variant: Variant
    address: str
    pids: tuple[int, ...]
    batches: BatchCounter


@contextmanager
def running_variant(
    variant: Variant, engine: EngineName, cores: frozenset[int], logs: Path
) -> Iterator[RunningVariant]:
    with ExitStack() as stack:
        with on_cores(cores):
            options, triton = [*_OPTIONS], None
            if engine == "triton":
                triton = stack.enter_context(_running_triton(variant, logs))
                options += ["--engine", "triton", "--triton", triton.address]
            module = "ghostless"
            if variant.members:
                module = "loadtest.compare.fan_out_server"
                options += ["--ensemble", f"{variant.model}={','.join(variant.members)}"]
            counter = BatchCounter.of(triton)
            server = stack.enter_context(running_server(variant.repository, *options, *counter.options, module=module))
        pids = (server.process.pid, *([triton.pid] if triton else []))
        yield RunningVariant(variant, server.address, pids, counter)


@contextmanager
def _running_triton(variant: Variant, logs: Path) -> Iterator[TritonServer]:
    models = [variant.model] if variant.kind == "triton-ensemble" else None
    server = TritonServer(variant.repository, logs / f"{variant.name}.log", models=models)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()
