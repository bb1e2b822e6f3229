"""Rows per run from metrics, as a real server exposes them."""

from pathlib import Path

from ghostless.client import Client
from loadtest.compare.batch_counts import BatchCounter, sums
from loadtest.server_process import running_server
from loadtest.workload import find_model
from tests.support.onnx_models import write_version
from tests.support.waiting import eventually

EXPOSITION = """# TYPE nv_inference_count counter
nv_inference_count{model="a",version="1"} 300
nv_inference_count{model="b",version="1"} 20
# TYPE nv_inference_exec_count counter
nv_inference_exec_count{model="a",version="1"} 3
nv_inference_exec_count{model="b",version="1"} 1
"""


def test_samples_are_summed_over_their_labels() -> None:
    assert sums(EXPOSITION, ("nv_inference_count", "nv_inference_exec_count")) == (320.0, 4.0)


def test_where_nobody_counts_there_are_no_batches() -> None:
    assert BatchCounter("http://127.0.0.1:9/metrics", ("a", "b")).read() == (0.0, 0.0)


def test_a_real_server_says_how_many_rows_it_ran_at_a_time(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    counter = BatchCounter.of(None)
    rows = find_model(tmp_path, "").rows(40, seed=0)
    with running_server(tmp_path, *counter.options, "--workers", "1") as server, Client(server.address) as client:
        before = counter.read()
        for _ in range(5):
            client.predict(**rows.arguments(""))
        eventually(lambda: counter.read()[1] >= before[1] + 5, "five counted runs")
        after = counter.read()
    assert (after[0] - before[0], after[1] - before[1]) == (200.0, 5.0)
