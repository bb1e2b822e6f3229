"""Measures the time of graphs on one thread, in short turns that alternate between graphs, so that noise affects all
alike.

Two things change a graph's time by more than most code changes: other load on the machine, which lasts for seconds, and
the location of ONNX Runtime's buffers, which is fixed for the life of a session. So turns are milliseconds long, graphs
are compared within a round, and every graph is loaded several times.
"""

import json
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from export.builder import Array
from serving.engines.embedded import session_options

WARM_UP = 5
# Number of times that each graph is loaded.
COPIES = 5
# Calls of a turn, of which the fastest counts: the first ones bring the graph's weights back into the cache.
TURN_CALLS = 10


class Running(Protocol):
    """A loaded graph."""

    def run(self, outputs: None, feed: dict[str, Array], /) -> Any: ...


def session(path: Path, profile_prefix: str = "") -> ort.InferenceSession:
    """Loads a graph with the options of the embedded engine."""
    options = session_options()
    if profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def copies(paths: Sequence[Path], count: int = COPIES) -> list[list[ort.InferenceSession]]:
    """Each graph loaded `count` times, in turn, so that no graph has all the best places in memory: [count][graphs]."""
    return [[session(path) for path in paths] for _ in range(count)]


def interleaved(loaded: Sequence[Sequence[Running]], feed: dict[str, Array], rounds: int) -> Array:
    """Seconds of a call, [copies, rounds, graphs]: in each round every graph has a turn of TURN_CALLS calls, of which
    the fastest counts. Rounds go through the copies in turn, and each begins with another graph."""
    for running in (each for row in loaded for each in row):
        for _ in range(WARM_UP):
            running.run(None, feed)
    best = np.zeros((len(loaded), rounds, len(loaded[0])))
    for turn in range(rounds):
        for copy, row in enumerate(loaded):
            for place in np.roll(np.arange(len(row)), turn).tolist():
                best[copy, turn, place] = min(_seconds(row[place], feed) for _ in range(TURN_CALLS))
    return best


def _seconds(running: Running, feed: dict[str, Array]) -> float:
    start = time.perf_counter()
    running.run(None, feed)
    return time.perf_counter() - start


def ratios(times: Array, over: int, under: int) -> list[float]:
    """One graph's time relative to another's, for each copy: the median of the ratios of its rounds. `times` as
    returned by `interleaved`. The spread between copies is the error of their median."""
    taken: list[float] = np.median(times[..., over] / times[..., under], axis=1).tolist()
    return taken


def microseconds(times: Array) -> list[float]:
    """Time of a call of each graph: the median over copies and rounds."""
    taken: list[float] = (1e6 * np.median(times, axis=(0, 1))).tolist()
    return taken


def profile(path: Path, feed: dict[str, Array], directory: Path, calls: int = 100) -> list[tuple[str, str, float]]:
    """(node, operator, microseconds) of every node, the slowest first. The profiler adds a few microseconds to each."""
    running = session(path, str(directory / "profile"))
    for _ in range(calls):
        running.run(None, feed)
    events = json.loads(Path(running.end_profiling()).read_text())
    durations: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            durations[event["name"].removesuffix("_kernel_time"), event["args"]["op_name"]].append(event["dur"])
    nodes = [(name, operator, float(np.median(times))) for (name, operator), times in durations.items()]
    return sorted(nodes, key=lambda node: -node[2])


def memory_mb(path: Path, feed: dict[str, Array]) -> tuple[float, float]:
    """Resident megabytes that loading and running the graph add to a new process, and the seconds that loading took."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_load_and_run, (path, feed))


def _load_and_run(path: Path, feed: dict[str, Array]) -> tuple[float, float]:
    before = _resident_mb("VmRSS")
    start = time.perf_counter()
    running = session(path)
    loaded = time.perf_counter() - start
    running.run(None, feed)
    return _resident_mb("VmHWM") - before, loaded


def _resident_mb(field: str) -> float:
    # Not getrusage: its peak survives exec and would be that of the parent.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024.0
