"""The facade before real Tritons that are killed, restarted and given new versions under load."""

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from typer.testing import CliRunner

from ghostless.commands import models
from ghostless.contract import repository
from serving.engines.embedded import load_model
from serving.engines.interface import Job
from serving.engines.triton import TritonEngine
from serving.engines.triton.dispatch import Dispatch
from serving.engines.triton.local_server import TritonServer
from tests.support.onnx_models import SMALL, Recipe, write_version
from tests.support.running import Running, graph_inputs, predict_request, response_tensors, serving
from tests.support.tritons import add_triton_files, engine_on, tritons
from tests.support.waiting import eventually


class SteadyRequests:
    """Clients that ask one after the other for as long as the block lasts."""

    def __init__(self, running: Running, clients: int = 4) -> None:
        self.versions: list[int] = []
        self.errors: list[grpc.RpcError] = []
        self._running = running
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(seed,)) for seed in range(clients)]

    def __enter__(self) -> "SteadyRequests":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def more(self, answers: int, timeout_s: float = 30.0) -> None:
        """Go on until there are so many answers more."""
        goal = len(self.versions) + answers
        eventually(lambda: len(self.versions) >= goal, f"{answers} answers more", timeout_s)

    def _ask(self, seed: int) -> None:
        request = predict_request(20, seed=seed, model="demo")
        while not self._stop.is_set():
            try:
                self.versions.append(self._running.stub.Predict(request, timeout=5).version)
            except grpc.RpcError as error:
                self.errors.append(error)


Pair = tuple[list[TritonServer], Running]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    write_version(root, 1, SMALL)
    write_version(root, 2, Recipe(seed=2))
    # A second or so for the rows that the test of cancellation sends.
    write_version(root, 1, Recipe(hidden=(256,), repeats=400), "slow")
    add_triton_files(root)
    repository.promote(root, "demo", 1)
    return root


@pytest.fixture(scope="module")
def pair(root: Path) -> Iterator[Pair]:
    """Two Tritons behind a facade."""
    with tritons(root, 2) as servers, engine_on(servers, repository=root) as engine:
        eventually(lambda: all(engine.endpoints().values()))
        with serving(engine, deadline_ms=0) as running:
            yield servers, running


def test_a_request_larger_than_tritons_batches_is_split_and_joined(pair: Pair, root: Path) -> None:
    request = predict_request(2500, model="demo", version=2)
    answer = pair[1].stub.Predict(request, timeout=20)
    graph = load_model(root / "demo" / "2" / "model.onnx", "demo", 2, warm_up_rows=())
    expected = graph.run(graph_inputs(request), graph.outputs)
    for output, values in response_tensors(answer).items():
        np.testing.assert_allclose(values, expected[output], rtol=1e-5, atol=1e-5, err_msg=output)


def test_a_call_may_have_no_deadline(pair: Pair) -> None:
    assert pair[1].stub.Predict(predict_request(model="demo")).rows == 3


def test_triton_does_not_run_what_clients_no_longer_wait_for(pair: Pair) -> None:
    servers, running = pair
    engine = running.engine
    assert isinstance(engine, TritonEngine)
    before = sum(_served(server, "slow") for server in servers)
    calls = [running.stub.Predict.future(predict_request(200, model="slow"), timeout=60) for _ in range(10)]
    eventually(lambda: engine.outstanding_rows == 2000)
    time.sleep(0.3)  # so that some are under way at the Tritons
    for call in calls[1:]:
        call.cancel()
    eventually(lambda: engine.outstanding_rows <= 200)
    assert calls[0].result().rows == 200
    # Those that ran when the others left, at most a batch on each Triton, and the one that stayed.
    assert sum(_served(server, "slow") for server in servers) - before < 10


def test_requests_leave_no_cycles_that_would_keep_their_streams_open(pair: Pair) -> None:
    gc.collect()
    gc.disable()
    try:
        with SteadyRequests(pair[1]) as load:
            load.more(100)
        eventually(lambda: pair[1].engine.outstanding_rows == 0)  # type: ignore[attr-defined]  # Triton's engine
        alive = [each for each in gc.get_objects() if isinstance(each, Dispatch | Job)]
    finally:
        gc.enable()
    # Those of the last round may not have been told of their end yet; a leak would keep all hundred.
    assert len(alive) < 50


def test_both_endpoints_are_used(pair: Pair) -> None:
    servers, running = pair
    before = [_served(server) for server in servers]
    with SteadyRequests(running) as load:
        load.more(100)
    assert all(_served(server) > count for server, count in zip(servers, before, strict=True))


def test_a_killed_triton_costs_no_request_and_is_used_again_once_it_is_back(pair: Pair) -> None:
    servers, running = pair
    with SteadyRequests(running) as load:
        load.more(200)
        servers[0].kill()
        load.more(300)
        servers[0].start()
        servers[0].wait_ready()
        eventually(lambda: all(running.engine.endpoints().values()))  # type: ignore[attr-defined]  # Triton's engine
        load.more(200)
    assert load.errors == []
    assert _served(servers[0]) > 0


def test_with_all_tritons_down_calls_fail_fast_until_one_is_back(pair: Pair) -> None:
    servers, running = pair
    for server in servers:
        server.kill()
    eventually(lambda: not running.engine.is_ready())
    started = time.monotonic()
    with pytest.raises(grpc.RpcError) as refused:
        running.stub.Predict(predict_request(model="demo"), timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert time.monotonic() - started < 0.5
    for server in servers:
        server.start()
    for server in servers:
        server.wait_ready()
    eventually(lambda: all(running.engine.endpoints().values()))  # type: ignore[attr-defined]  # Triton's engine
    assert running.stub.Predict(predict_request(model="demo"), timeout=5).rows == 3


def test_a_version_is_rolled_out_and_back_under_load(pair: Pair, root: Path) -> None:
    servers, running = pair
    addresses = ",".join(server.address for server in servers)
    with SteadyRequests(running) as load:
        load.more(100)
        _models("promote", "demo", "2", "--triton", addresses, "--repository", str(root))
        eventually(lambda: load.versions[-1] == 2)
        load.more(100)
        _models("rollback", "demo", "--triton", addresses, "--repository", str(root))
        eventually(lambda: load.versions[-1] == 1)
        load.more(100)
    assert load.errors == []
    # Answers of four clients may be noted in a slightly different order than they were given.
    switches = int(np.count_nonzero(np.diff(load.versions)))
    assert 2 <= switches <= 10
    assert set(load.versions[:50]) == {1}
    assert set(load.versions[-50:]) == {1}
    assert repository.find(root, "demo").in_service == 1


def test_a_version_that_does_not_load_changes_nothing(pair: Pair, root: Path) -> None:
    servers, running = pair
    write_version(root, 3, Recipe(seed=3))
    add_triton_files(root)
    (root / "demo" / "3" / "model.onnx").write_bytes(b"damaged")
    addresses = ",".join(server.address for server in servers)
    command = ["promote", "demo", "3", "--no-check", "--triton", addresses, "--repository", str(root)]
    with SteadyRequests(running) as load:
        refused = CliRunner().invoke(models.app, command)
        load.more(50)
    assert "can't load version 3" in str(refused.exception)
    assert load.errors == []
    assert set(load.versions) == {1}
    assert repository.find(root, "demo").in_service == 1


def test_a_deadline_that_passes_in_tritons_queue_is_deadline_exceeded(pair: Pair) -> None:
    # Enough calls that some wait, but fewer rows than the queue holds; a single call may be answered within 1 ms.
    calls = [pair[1].stub.Predict.future(predict_request(2000, model="demo"), timeout=0.001) for _ in range(8)]
    codes = {call.code() for call in calls}
    assert grpc.StatusCode.DEADLINE_EXCEEDED in codes
    assert codes <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK}
    assert pair[1].stub.Predict(predict_request(model="demo"), timeout=5).rows == 3


def _models(*arguments: str) -> None:
    result = CliRunner().invoke(models.app, list(arguments))
    assert result.exit_code == 0, result.output + repr(result.exception)


def _served(server: TritonServer, model: str = "demo") -> int:
    """Requests that this Triton has answered since it started."""
    from tritonclient.grpc import service_pb2 as oip
    from tritonclient.grpc import service_pb2_grpc

    with grpc.insecure_channel(server.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        statistics = stub.ModelStatistics(oip.ModelStatisticsRequest(name=model), timeout=5)
    return sum(int(model.inference_stats.success.count) for model in statistics.model_stats)
