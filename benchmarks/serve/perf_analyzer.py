"""NVIDIA's perf_analyzer with the Open Inference Protocol: an unmodified client must be able to measure the server."""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from loadtest.workload import ServedModel

REQUESTS = 200


@dataclass(frozen=True)
class Outcome:
    exit_status: int
    requests_per_s: float | None
    last_words: str


def find_perf_analyzer() -> str | None:
    """Its path: on the PATH, or from `make triton`; None if it is not installed."""
    places = (Path(".tools/bin/perf_analyzer"), Path(".triton/bin/perf_analyzer"))
    local = next((str(place.resolve()) for place in places if place.exists()), None)
    return shutil.which("perf_analyzer") or local


def run_perf_analyzer(program: str, model: ServedModel, address: str, candidates: int, concurrency: int) -> Outcome:
    command = [program, "-m", model.name, "-u", address, "-i", "grpc"]
    command += ["--concurrency-range", str(concurrency)]
    command += ["--measurement-mode", "count_windows", "--measurement-request-count", str(REQUESTS)]
    # Only compatibility is tested. Without this option the exit status would depend on how steady the machine is.
    command += ["--stability-percentage", "999"]
    for feature in model.features:
        command += ["--shape", f"{feature.name}:{candidates}"]
    # It writes files to its working directory.
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=300)
    rate = re.search(r"Throughput: ([\d.]+) infer/sec", ended.stdout)
    words = " | ".join((ended.stderr or ended.stdout).strip().splitlines()[-3:])
    return Outcome(ended.returncode, float(rate[1]) if rate else None, words)
