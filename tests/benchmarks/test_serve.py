"""The instruments of `ghostless bench serve`: each must be able to see what it is there to see."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from benchmarks.serve import stages
from ghostless.client import Prediction
from ghostless.client.calls import predict_call
from ghostless.commands.main import main
from ghostless.contract.cores import available_cores
from loadtest.bare_session import bare_cores
from loadtest.h2load import Generator, H2loadResult, find_h2load, parse_report
from loadtest.server_process import BenchError, running_server
from loadtest.workload import ServedModel, find_model, largest_difference
from tests.support import onnx_models
from tests.support.scripted_server import Failure, ScriptedServer, scripted_server

REPORT = """\
finished in 1.00s, 2345.50 req/s, 1.20MB/s
requests: 2400 total, 2408 started, 2400 done, 2399 succeeded, 1 failed, 1 errored, 0 timeout
status codes: 2399 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 1.20MB (1258291) total, 100.00KB (102400) headers (space savings 80.00%), 1.00MB (1048576) data
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    root = tmp_path_factory.mktemp("repository")
    for version in (2, 10):
        onnx_models.write_version(root, version)
    onnx_models.write_version(root, 1, name="zebra")
    (root / "demo" / "notes").mkdir()
    return find_model(root, "")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


@pytest.fixture(scope="module")
def h2load() -> str:
    try:
        return find_h2load()
    except BenchError as error:
        pytest.skip(str(error))


def generator(program: str, answer_bytes: int) -> Generator:
    call = predict_call({"context": {"user_id": 7}, "candidates": {"duration": np.ones(50, np.float32)}})
    return Generator(program, call.request, answer_bytes)


def test_the_report_is_read() -> None:
    assert parse_report(REPORT) == (H2loadResult(requests=2400, failed=1, requests_per_s=2345.5), 1048576)


@pytest.mark.parametrize("text", ["", REPORT.replace("2400 done", "0 done")])
def test_a_report_of_nothing_is_no_measurement(text: str) -> None:
    with pytest.raises(BenchError):
        parse_report(text)


def test_load_reaches_the_server(h2load: str, server: ScriptedServer) -> None:
    # 50 rows of mean alone are 200 bytes.
    load = generator(h2load, 200).throughput(server.address, concurrency=4, seconds=1)
    assert load.failed == 0
    assert 0 < load.requests <= len(server.servicer.requests)
    assert len(server.servicer.requests[0].candidates["duration"].floats.values) == 50


def test_median_latency_is_that_of_the_server(h2load: str) -> None:
    with scripted_server(*[0.02] * 30) as slow:
        assert 0.02 < generator(h2load, 200).median_latency_s(slow.address, requests=30) < 0.2


def test_grpc_errors_do_not_pass_as_answers(h2load: str) -> None:
    failure = Failure(grpc.StatusCode.INVALID_ARGUMENT)
    with scripted_server(*[failure] * 20) as failing, pytest.raises(BenchError, match="bytes came back"):
        generator(h2load, 200).median_latency_s(failing.address, requests=20)


def test_the_newest_version_of_the_first_model_is_taken(model: ServedModel) -> None:
    assert (model.name, model.path.parent.name) == ("demo", "10")
    assert "cdf" not in model.outputs
    assert "mean" in model.outputs


@pytest.mark.parametrize("name", ["", "other"])
def test_an_empty_repository_tells_what_to_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(BenchError, match=r"make serve.*ghostless export"):
        find_model(tmp_path, name)


def test_rows_repeat_by_seed_and_stay_in_the_vocabulary(model: ServedModel) -> None:
    rows = model.rows(500, seed=3)
    assert len(rows) == 500
    assert {name: len(values) for name, values in rows.context.items()} == {"user_id": 1, "hour": 1}
    assert rows.candidates["item_id"].max() < 200
    again = model.rows(500, seed=3)
    np.testing.assert_array_equal(rows.candidates["item_id"], again.candidates["item_id"])
    assert all(len(values) == 500 for values in rows.feeds().values())


def test_differences_are_seen(model: ServedModel) -> None:
    expected: dict[str, Any] = dict(model.infer(model.rows(4, seed=0)))
    answer = Prediction("demo", 1, "", 4, **expected)
    assert largest_difference(answer, expected) == 0
    off = Prediction("demo", 1, "", 4, **{**expected, "bins": expected["bins"] + np.float32(0.01)})
    assert largest_difference(off, expected) == pytest.approx(0.01, rel=1e-3)
    with pytest.raises(BenchError, match="quantiles does not have the shape"):
        largest_difference(Prediction("demo", 1, "", 4, **{**expected, "quantiles": None}), expected)


def test_bare_cores_count_all_cores(model: ServedModel) -> None:
    feeds = model.rows(64, seed=0).feeds()
    with bare_cores(model.path, model.outputs) as cores:
        rate = cores.rows_per_s(feeds, seconds=0.2)
        assert len(cores) == available_cores()
    assert rate > 64 / 0.2


def test_a_server_that_cannot_start_tells_why(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"ended with status 1; its last output: .*no model"), running_server(tmp_path):
        pass


def test_the_whole_bench_runs_and_judges(
    model: ServedModel,
    h2load: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    repository = model.path.parents[2]
    short = stages.ServePlan(starts=1, rounds=1, round_s=1, latency_requests=50, answers=5, steady_s=0.2)
    monkeypatch.setattr(stages, "QUICK", short)
    written = tmp_path / "serve.json"
    options = ["--quick", "--repository", str(repository), "--json", str(written)]
    monkeypatch.setattr(sys, "argv", ["ghostless", "bench", "serve", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    figures = {figure["name"]: figure for figure in json.loads(written.read_text())["figures"]}
    assert bool(ended.value.code) == (not all(figure["ok"] for figure in figures.values()))
    # What does not depend on how busy this machine is must hold; the rest must be there.
    for name in (
        "torch libraries in the serving processes",
        "SIGTERM not followed by exit status 0",
        "largest difference from the graph, one request at a time",
        "largest difference from the graph, 8 at a time",
        "failed requests during hot reload",
        "versions that answered during hot reload",
    ):
        assert figures[name]["ok"], name
    assert {figure["bound"] for figure in figures.values()} >= {">= 0.6", ">= 0.7", "<= 1.0", ">= 3000", "< 3"}
    assert "compared with bare ONNX Runtime" in capsys.readouterr().out
