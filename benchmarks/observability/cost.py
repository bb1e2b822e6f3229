"""The cost of the uncertainty metrics per request, with many responses processed at once as in the server's recorder.

Runs in a separate process: `python -m benchmarks.observability.cost REPOSITORY MODEL ROWS PASSES` prints seconds per
request.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loadtest.server_process import BenchError
from loadtest.workload import ServedModel, find_model


def seconds_per_request(repository: Path, model: ServedModel, rows: int, passes: int) -> float:
    ended = subprocess.run(
        [sys.executable, "-m", __name__, str(repository), model.name, str(rows), str(passes)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise BenchError(f"the uncertainty metrics could not be measured: {ended.stderr.strip()[-300:]}")
    return float(ended.stdout)


def _measure(repository: Path, name: str, rows: int, passes: int) -> float:
    from serving.engines.embedded import load_model
    from serving.telemetry.metrics import ServerMetrics
    from serving.telemetry.ranges import RangeObserver
    from serving.telemetry.record import CallRecord
    from serving.telemetry.recorder import BACKLOG_ROWS, sample_wide_outputs
    from serving.telemetry.uncertainty import UncertaintyObserver
    from serving.telemetry.values import ValueMemory

    served = find_model(repository, name)
    model = load_model(served.path, name, 1, warm_up_rows=())
    outputs = [output.name for output in served.session.get_outputs()]
    requests = max(1, BACKLOG_ROWS // rows)
    # Twice as many responses as the recorder processes at once, so that none is still cached from the previous pass.
    calls = []
    for seed in range(2 * requests):
        call = CallRecord("Predict", 0.0)
        call.model, call.code, call.is_sampled = model, "OK", True
        call.inputs = served.rows(rows, seed).feeds()
        call.outputs = dict(zip(outputs, served.session.run(outputs, dict(call.inputs)), strict=True))
        calls.append(call)
    halves = (calls[:requests], calls[requests:])
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        metrics = ServerMetrics(ValueMemory(Path(folder))).uncertainty
        observer, ranges = UncertaintyObserver(metrics), RangeObserver(metrics)
        for number in range(passes):
            began = time.thread_time()
            half = halves[number % 2]
            answers = [call.outputs for call in half]
            observer.observe(model, answers, [sample_wide_outputs(answer) for answer in answers])
            ranges.take(half, 0.0)
            spent.append(time.thread_time() - began)
    return statistics.median(spent) / requests


if __name__ == "__main__":
    print(_measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
