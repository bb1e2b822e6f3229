"""perf_analyzer on Triton directly: the performance without a facade in between."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Literal

from loadtest.server_process import BenchError


@dataclass(frozen=True)
class Direct:
    rows_per_s: float
    p50_ms: float


def measure_triton(
    program: str,
    model: str,
    address: str,
    *,
    rows: int,
    concurrency: int,
    requests: int,
    shared_memory: Literal["none", "system"] = "none",
) -> Direct:
    """Closed loop of `concurrency` requests of `rows` random rows each."""
    command = [program, "-m", model, "-u", address, "-i", "grpc", "-b", str(rows)]
    command += ["--concurrency-range", str(concurrency), f"--shared-memory={shared_memory}"]
    if shared_memory != "none":
        command += ["--output-shared-memory-size", str(1 << 20)]
    # It repeats measurement windows until three agree; count windows of this size match the load of h2load.
    command += ["--measurement-mode", "count_windows", "--measurement-request-count", str(requests)]
    command += ["--stability-percentage", "999", "--max-trials", "3"]
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=600)
    rate = re.search(r"Throughput: ([\d.]+) infer/sec", ended.stdout)
    p50 = re.search(r"p50 latency: (\d+) usec", ended.stdout)
    if rate is None or p50 is None:
        words = " | ".join((ended.stdout + ended.stderr).strip().splitlines()[-3:])
        raise BenchError(f"perf_analyzer measured nothing on Triton {address}: {words}")
    return Direct(float(rate[1]), int(p50[1]) / 1000)
