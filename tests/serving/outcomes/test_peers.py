"""Outcomes where several processes share the port: whoever hears of one, it is joined, once."""

import os
import re
import signal
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest

from ghostless.v1 import prediction_pb2 as pb
from tests.support.grpc_calls import stub_on
from tests.support.onnx_models import write_version
from tests.support.processes import ServeProcess, served
from tests.support.running import predict_request
from tests.support.scrape import metrics_url, total
from tests.support.waiting import eventually

ROWS = 5


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_version(tmp_path, 1)
    return tmp_path


def connect(server: ServeProcess) -> grpc.Channel:
    """A connection of its own, so that a worker is chosen anew."""
    return grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)])


def predict(server: ServeProcess, ids: list[str]) -> None:
    with connect(server) as channel:
        predict_on(channel, ids)


def predict_on(channel: grpc.Channel, ids: list[str]) -> None:
    stub = stub_on(channel)
    for seed, request_id in enumerate(ids):
        stub.Predict(predict_request(ROWS, seed=seed, request_id=request_id), timeout=10)


def record(server: ServeProcess, outcomes: list[tuple[str, int]]) -> pb.RecordOutcomesResponse:
    request = pb.RecordOutcomesRequest(
        request_ids=[name for name, _ in outcomes], rows=[row for _, row in outcomes], actuals=[1.0] * len(outcomes)
    )
    with connect(server) as channel:
        response: pb.RecordOutcomesResponse = stub_on(channel).RecordOutcomes(request, timeout=20)
        return response


def scraped(server: ServeProcess) -> dict[str, float]:
    """Outcomes by result, over all models; and how many were scored."""
    url = next(line.split()[1] for line in server.lines if line.startswith("metrics: "))
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    found: Counter[str] = Counter()
    for result, value in re.findall(r'^ghostless_outcomes_total\{.*result="(\w+)".*\} (\S+)$', text, re.MULTILINE):
        found[result] += int(float(value))
    for value in re.findall(r"^ghostless_outcome_crps_count\{.*\} (\S+)$", text, re.MULTILINE):
        found["scored"] += int(float(value))
    return dict(found)


def test_every_outcome_is_joined_exactly_once(repository: Path) -> None:
    with served(repository, "--workers", "4") as server, ThreadPoolExecutor(8) as pool:
        assert len(psutil.Process(server.process.pid).children()) == 4
        groups = [[f"{group}-{number}" for number in range(10)] for group in range(40)]
        list(pool.map(lambda ids: predict(server, ids), groups))
        outcomes = [(request_id, row) for ids in groups for request_id in ids for row in range(ROWS)]
        order = np.random.default_rng(0).permutation(len(outcomes))
        calls = [[outcomes[place] for place in part] for part in np.array_split(order, 40)]

        responses = list(pool.map(lambda call: record(server, call), calls))
        assert [answer.joined for answer in responses] == [len(call) for call in calls]
        assert scraped(server) == {"joined": 2000, "scored": 2000}

        again = list(pool.map(lambda call: record(server, call), calls[::-1]))
        assert sum(answer.duplicate for answer in again) == 2000
        strangers = record(server, [("nobody", 0), ("0-0", ROWS)])
        assert (strangers.unknown, strangers.invalid) == (1, 1)
        counts = {"joined": 2000, "scored": 2000, "duplicate": 2000, "unknown": 1, "invalid": 1}
        assert scraped(server) == counts
        assert server.stop() == 0


def test_a_request_sent_to_several_workers_is_one_request(repository: Path) -> None:
    with served(repository, "--workers", "4") as server:
        for _ in range(16):
            predict(server, ["again"])
        joined = sum(record(server, [("again", 0)]).joined for _ in range(16))
        assert (joined, scraped(server)["scored"]) == (1, 1)


def test_a_worker_that_dies_takes_its_own_predictions_along_and_no_others(repository: Path) -> None:
    with served(repository, "--workers", "2") as server:
        groups = [[f"{group}-{number}" for number in range(3)] for group in range(24)]
        with ExitStack() as stack:
            # All open at a time, so that both workers have some: closed ones leave no trace on who gets the next.
            for ids in groups:
                predict_on(stack.enter_context(connect(server)), ids)
        victim = psutil.Process(server.process.pid).children()[0]
        os.kill(victim.pid, signal.SIGKILL)
        server.wait_for("starting another")
        _wait_until_in_service(server, times=3)
        responses = [record(server, [(request_id, 0) for request_id in ids]) for ids in groups]
        # A connection is a worker's, and so are all predictions of a group.
        assert {(answer.joined, answer.unknown) for answer in responses} == {(3, 0), (0, 3)}
        joined = sum(answer.joined for answer in responses)
        assert scraped(server) == {"joined": joined, "scored": joined, "unknown": 72 - joined}

        more = [[f"after-{group}"] for group in range(12)]
        for ids in more:
            predict(server, ids)
        assert sum(record(server, [(ids[0], 0)]).joined for ids in more) == 12


def _wait_until_in_service(server: ServeProcess, times: int) -> None:
    eventually(lambda: server.output.count("is in service") >= times, "another model in service", timeout_s=60)
    eventually(lambda: total(metrics_url(server), "ready") == 2, "two workers that are ready")
