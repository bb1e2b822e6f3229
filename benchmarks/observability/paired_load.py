"""Two servers under load in alternating rounds, a quarter of a second each, hundreds of times.

A machine's speed can change by 8% within 50 ms or 2 s, so many short rounds show differences that a few long ones
cannot. The other server is stopped (SIGSTOP) together with its load, so that deferred work, such as the recorder's, is
done in the server's own rounds.
"""

import math
import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadtest.h2load import Generator
from loadtest.server_process import BenchError, ServerProcess

ROUND_S = 0.25
# Number of rounds of each server that are not counted.
WARM_UP_ROUNDS = 8
_SLACK_S = 5.0
# Size of h2load's log after a few hundred requests.
_ALL_ARE_THERE_BYTES = 5000


@dataclass(frozen=True)
class PairedLoad:
    """The load of one server: `rare` in every `every`-th of its rounds, `usual` in the others."""

    server: ServerProcess
    usual: Generator
    rare: Generator | None = None
    every: int = 1

    def of_round(self, number: int) -> int:
        """0 for the usual load, 1 for the rare one."""
        return int(self.rare is not None and number % self.every == self.every - 1)


@dataclass(frozen=True)
class Round:
    requests: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


@dataclass(frozen=True)
class Share:
    """Throughput of the second server divided by that of the first, and its 95% margin of error."""

    first: float
    second: float
    value: float
    margin: float


def share_of(first: Sequence[Round], second: Sequence[Round]) -> Share:
    """The ratio of the servers' requests per second over all rounds; the margin is that of a ratio of paired means."""
    rates = [sum(t.requests for t in rounds) / sum(t.seconds for t in rounds) for rounds in (first, second)]
    value = rates[1] / rates[0]
    apart = [b.rate - value * a.rate for a, b in zip(first, second, strict=True)]
    margin = 1.96 * statistics.stdev(apart) / math.sqrt(len(apart)) / rates[0]
    return Share(rates[0], rates[1], value, margin)


def run_rounds(
    first: PairedLoad, second: PairedLoad, folder: Path, concurrency: int, rounds: int, on_round: Callable[[int], None]
) -> tuple[list[Round], list[Round]]:
    """`rounds` rounds of each server; the server that begins alternates. `on_round` is called when a round of the
    second server begins."""
    loads = (first, second)
    total = WARM_UP_ROUNDS + rounds
    windows: list[list[tuple[float, float]]] = [[], []]
    with ExitStack() as stack:
        running = [
            [
                stack.enter_context(_Running(generator, load.server, folder / f"{side}-{kind}", concurrency, total))
                for kind, generator in enumerate((load.usual, load.rare))
                if generator is not None
            ]
            for side, load in enumerate(loads)
        ]
        for load in loads:
            stack.callback(_signal_server, load.server, signal.SIGCONT)
            _signal_server(load.server, signal.SIGSTOP)
        for number in range(total):
            for side in (0, 1) if number % 2 else (1, 0):
                load, generator = loads[side], running[side][loads[side].of_round(number)]
                _signal_server(load.server, signal.SIGCONT)
                generator.signal(signal.SIGCONT)
                if side:
                    on_round(number)
                began = time.time()
                time.sleep(ROUND_S)
                generator.signal(signal.SIGSTOP)
                _signal_server(load.server, signal.SIGSTOP)
                windows[side].append((began, time.time()))
        for load in loads:
            _signal_server(load.server, signal.SIGCONT)
        ends = [np.concatenate([each.finish() for each in side]) for side in running]
    counted = [
        [Round(int(((ends[side] >= a) & (ends[side] < b)).sum()), b - a) for a, b in windows[side][WARM_UP_ROUNDS:]]
        for side in (0, 1)
    ]
    return counted[0], counted[1]


class _Running:
    """h2load, stopped except in its rounds. Its log contains the end time of each request."""

    def __init__(self, generator: Generator, server: ServerProcess, log: Path, concurrency: int, rounds: int) -> None:
        self._generator = generator
        self._log = log
        seconds = math.ceil(2.2 * rounds * ROUND_S + _SLACK_S)
        self._process = generator.start(server.address, concurrency, seconds, log)

    def __enter__(self) -> "_Running":
        # A connection goes to the worker with the fewest. All connections of one load must be open before the next load
        # starts, or each load may end up on a different worker.
        until = time.monotonic() + _SLACK_S
        while not self._log.exists() or self._log.stat().st_size < _ALL_ARE_THERE_BYTES:
            if time.monotonic() > until or self._process.poll() is not None:
                self.__exit__()
                raise BenchError("h2load received no responses")
            time.sleep(0.01)
        self.signal(signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def finish(self) -> npt.NDArray[np.float64]:
        """Let it end; returns the end times of its requests, in seconds since the epoch."""
        self.signal(signal.SIGCONT)
        text, problem = self._process.communicate()
        self._generator.check(self._process.returncode, text, problem)
        begun, _, took = np.loadtxt(self._log, dtype=np.float64, ndmin=2).T
        ended: npt.NDArray[np.float64] = (begun + took) / 1e6
        return ended


def _signal_server(server: ServerProcess, number: signal.Signals) -> None:
    # The server has its own session, so its process group contains no other processes.
    os.killpg(server.process.pid, number)
