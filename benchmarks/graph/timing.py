"""How long a graph takes, on one thread, in rounds that alternate between graphs so that noise meets all alike."""

import json
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from export.builder import Array
from serving.engines.embedded import session_options

WARM_UP = 5


def session(path: Path, profile_prefix: str = "") -> ort.InferenceSession:
    """As the embedded engine runs it."""
    options = session_options()
    if profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def interleaved(sessions: Sequence[ort.InferenceSession], feed: dict[str, Array], rounds: int, calls: int) -> Array:
    """Seconds per call, [rounds, sessions]: in each round every session runs `calls` times, and its best call counts,
    which is the one that no other process interrupted."""
    for running in sessions:
        for _ in range(WARM_UP):
            running.run(None, feed)
    best = np.zeros((rounds, len(sessions)))
    for turn in range(rounds):
        for place, running in enumerate(sessions):
            times = []
            for _ in range(calls):
                start = time.perf_counter()
                running.run(None, feed)
                times.append(time.perf_counter() - start)
            best[turn, place] = min(times)
    return best


def ratios(times: Array, over: int, under: int) -> list[float]:
    """One graph's time in units of another's, for each round."""
    taken: list[float] = (times[:, over] / times[:, under]).tolist()
    return taken


def profile(path: Path, feed: dict[str, Array], directory: Path, calls: int = 100) -> list[tuple[str, str, float]]:
    """(node, operator, microseconds) of every node, dearest first. The profiler adds a few microseconds to each."""
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
    """Resident megabytes that loading and running the graph add to a fresh process, and the seconds loading took."""
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
    # Not getrusage: its peak survives exec and would be the parent's.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024.0
