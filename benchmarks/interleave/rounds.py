"""Rounds in which two servers take turns, so that other load on the machine affects both equally.

A round restarts both servers, because two processes of the same program can differ by a percent or more during their
whole life. Then, for each request size, load goes to A, B, B, A for a slice each, and in the next round to B, A, A, B.
The other server is stopped meanwhile (turns.py).
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.interleave.checkouts import Checkout
from benchmarks.turns import Sample, Slice, measure, stopped
from ghostless.client.calls import predict_call
from loadtest.h2load import METHOD, Generator
from loadtest.server_process import ServerProcess, running_server
from loadtest.workload import ServedModel

_ANSWER_WITHIN_S = 30.0


@dataclass(frozen=True)
class Plan:
    rounds: int
    slice_s: float
    # Slices per server, round and request size.
    slices: int
    sizes: tuple[int, ...]


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
            with stopped(*(server.group for server in servers)):
                # The first slice of each warms it up.
                for turn in range(plan.slices + 1):
                    for side in (0, 1) if (turn + number) % 2 else (1, 0):
                        measured = measure(servers[side].group, servers[side].address, load, plan.slice_s)
                        if turn:
                            slices[side].append(measured)
            samples[size] = (Sample.of(slices[0]), Sample.of(slices[1]))
            on_size(size, *samples[size])
    return Round(samples, different)


def _answer(server: ServerProcess, request: bytes) -> bytes:
    with grpc.insecure_channel(server.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        return call(request, timeout=_ANSWER_WITHIN_S)
