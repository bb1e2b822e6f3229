"""Rounds in which two servers take turns, so that other load on the machine affects both equally.

A round restarts both servers, because two processes of the same program can differ by a percent or more during their
whole life. Then, for each request size, load goes to A, B, B, A for a slice each, and in the next round to B, A, A, B.
The other server is stopped meanwhile (SIGSTOP), so it neither takes time from the one under load nor catches up on
deferred work. Slices are short because a shared machine's speed changes within seconds: eight slices of half a second
show differences that two slices of a second or more cannot.
"""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import numpy.typing as npt

from benchmarks.interleave.checkouts import Checkout
from ghostless.client.calls import predict_call
from loadtest.h2load import METHOD, Generator
from loadtest.server_process import ServerProcess, running_server
from loadtest.workload import ServedModel

CONNECTIONS = 8
_ANSWER_WITHIN_S = 30.0


@dataclass(frozen=True)
class Plan:
    rounds: int
    slice_s: float
    # Slices per server, round and request size.
    slices: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """One server under load for one slice; latencies in seconds, one per request."""

    cpu_s: float
    elapsed_s: float
    latencies_s: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Results of one server in one round, for one request size."""

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


@dataclass(frozen=True)
class Round:
    """Samples of A and B by request size, and the sizes for which their responses differ."""

    samples: dict[int, tuple[Sample, Sample]]
    different: list[int]


def run_round(
    checkouts: tuple[Checkout, Checkout],
    repository: Path,
    model: ServedModel,
    h2load: str,
    plan: Plan,
    number: int,
    on_size: Callable[[int, Sample, Sample], None],
) -> Round:
    samples: dict[int, tuple[Sample, Sample]] = {}
    different: list[int] = []
    with ExitStack() as stack:
        # The order alternates, because the server that starts second finds the files in memory.
        order = (0, 1) if number % 2 else (1, 0)
        started = {
            side: stack.enter_context(running_server(repository, program=checkouts[side].program)) for side in order
        }
        servers = (started[0], started[1])
        loads: dict[int, Generator] = {}
        for size in plan.sizes:
            request = predict_call(model.rows(size, seed=number).arguments(model.name)).request
            answers = [_answer(server, request) for server in servers]
            if answers[0] != answers[1]:
                different.append(size)
            loads[size] = Generator(h2load, request, len(answers[0]))
        for size, load in loads.items():
            slices: tuple[list[Slice], list[Slice]] = ([], [])
            with _stopped(*servers):
                # The first slice of each server is a warm-up.
                for turn in range(plan.slices + 1):
                    for side in (0, 1) if (turn + number) % 2 else (1, 0):
                        measured = _measure(servers[side], load, plan.slice_s)
                        if turn:
                            slices[side].append(measured)
            samples[size] = (Sample.of(slices[0]), Sample.of(slices[1]))
            on_size(size, *samples[size])
    return Round(samples, different)


def _measure(server: ServerProcess, load: Generator, seconds: float) -> Slice:
    with _its_turn(server), tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        before = server.cpu_s()
        running = load.start(server.address, CONNECTIONS, seconds, log)
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


def _answer(server: ServerProcess, request: bytes) -> bytes:
    with grpc.insecure_channel(server.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        return call(request, timeout=_ANSWER_WITHIN_S)


@contextmanager
def _stopped(*servers: ServerProcess) -> Iterator[None]:
    try:
        for server in servers:
            _signal(server, signal.SIGSTOP)
        yield
    finally:
        for server in servers:
            _signal(server, signal.SIGCONT)


@contextmanager
def _its_turn(server: ServerProcess) -> Iterator[None]:
    _signal(server, signal.SIGCONT)
    try:
        yield
    finally:
        _signal(server, signal.SIGSTOP)


def _signal(server: ServerProcess, number: signal.Signals) -> None:
    # The server has its own session, so its process group contains no other processes.
    with suppress(ProcessLookupError):
        os.killpg(server.process.pid, number)
