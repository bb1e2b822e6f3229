"""Bare ONNX Runtime in process: the machine's upper limit with the same file and the same rows."""

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ghostless.contract.cores import available_cores

Feeds = dict[str, npt.NDArray[Any]]


def bare_session(model: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def median_latency_s(session: ort.InferenceSession, outputs: list[str], feeds: Feeds, runs: int) -> float:
    durations = []
    for _ in range(runs):
        began = time.perf_counter()
        session.run(outputs, feeds)
        durations.append(time.perf_counter() - began)
    return statistics.median(durations)


@dataclass(frozen=True)
class BareLoad:
    """All cores at once, each running the same feeds over and over."""

    runs_per_s: float
    cpu_per_run_s: float


class BareCores:
    """One single-threaded session per core, each in its own process, idle until used."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def __len__(self) -> int:
        return len(self._pipes)

    def rows_per_s(self, feeds: Feeds, seconds: float) -> float:
        """Throughput with all cores running at once."""
        return self.load(feeds, seconds).runs_per_s * len(next(iter(feeds.values())))

    def load(self, feeds: Feeds, seconds: float) -> BareLoad:
        for pipe in self._pipes:
            pipe.send((feeds, seconds))
        runs, elapsed_s, cpu_s = np.array([pipe.recv() for pipe in self._pipes]).T
        return BareLoad(float(np.sum(runs / elapsed_s)), float(cpu_s.sum() / runs.sum()))


@contextmanager
def bare_cores(model: Path, outputs: list[str]) -> Iterator[BareCores]:
    # Spawned, not forked: gRPC's and ONNX Runtime's threads don't survive a fork.
    context = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    try:
        for _ in range(available_cores()):
            near, far = context.Pipe()
            worker = context.Process(target=_work, args=(far, model, outputs), daemon=True)
            worker.start()
            pipes.append(near)
            workers.append(worker)
        yield BareCores(pipes)
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(pipe: Connection, model: Path, outputs: list[str]) -> None:
    session = bare_session(model)
    while True:
        try:
            feeds, seconds = pipe.recv()
        except EOFError:
            return
        session.run(outputs, feeds)
        runs, began, cpu_began = 0, time.perf_counter(), time.process_time()
        while (elapsed := time.perf_counter() - began) < seconds:
            session.run(outputs, feeds)
            runs += 1
        pipe.send((runs, elapsed, time.process_time() - cpu_began))
