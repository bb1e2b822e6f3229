"""Servers under load in turns of a fraction of a second.

A server that has not its turn is stopped (SIGSTOP): it neither takes time from the others nor works off anything then.
Slices are short because a shared machine's speed changes within seconds: eight of half a second tell two servers apart
where two of a second and more can't.
"""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadtest.h2load import Generator
from loadtest.server_process import ProcessGroup

CONNECTIONS = 8


@dataclass(frozen=True)
class Slice:
    """One server under load for a moment; latencies in seconds, one for each request."""

    cpu_s: float
    elapsed_s: float
    latencies_s: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """What one server did in one round, with requests of one size."""

    cpu_per_request_s: float
    requests_per_s: float
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, slices: list[Slice]) -> "Sample":
        latencies = np.concatenate([each.latencies_s for each in slices])
        p50, p99 = np.quantile(latencies, [0.5, 0.99])
        return cls(
            sum(each.cpu_s for each in slices) / len(latencies),
            len(latencies) / sum(each.elapsed_s for each in slices),
            float(p50),
            float(p99),
        )


def measure(server: ProcessGroup, address: str, load: Generator, seconds: float) -> Slice:
    """Load on a server that is stopped before and after."""
    with _its_turn(server), tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        before = server.cpu_s()
        running = load.start(address, CONNECTIONS, seconds, log)
        try:
            text, problem = running.communicate()
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
        cpu_s = server.cpu_s() - before
        load.check(running.returncode, text, problem)
        begun, _, took = np.loadtxt(log, dtype=np.float64, ndmin=2).T
    elapsed_s = float((begun + took).max() - begun.min()) / 1e6
    return Slice(cpu_s, elapsed_s, took / 1e6)


@contextmanager
def stopped(*servers: ProcessGroup) -> Iterator[None]:
    try:
        for server in servers:
            server.send_signal(signal.SIGSTOP)
        yield
    finally:
        for server in servers:
            server.send_signal(signal.SIGCONT)


@contextmanager
def _its_turn(server: ProcessGroup) -> Iterator[None]:
    server.send_signal(signal.SIGCONT)
    try:
        yield
    finally:
        server.send_signal(signal.SIGSTOP)
