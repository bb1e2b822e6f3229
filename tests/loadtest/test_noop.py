"""The generator against nghttpd, a server of another make."""

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.load.generator_figures import generator_figures
from ghostless.client.models import parse_model
from ghostless.v1 import prediction_pb2 as pb
from loadtest.figures import Figures
from loadtest.generator.plan import STATUS_ONLY, LoadPlan, RequestMix
from loadtest.generator.requests import prepare_load
from loadtest.generator.run import run_load
from loadtest.noop import NGHTTPD, noop_server
from loadtest.programs import find_program
from loadtest.server_process import BenchError
from tests.support.running import predict_request
from tests.support.scripted_server import answer, demo_model

MODEL = parse_model(demo_model().SerializeToString())


@pytest.fixture(autouse=True)
def nghttpd() -> None:
    try:
        find_program(NGHTTPD)
    except BenchError as error:
        pytest.skip(str(error))


def test_every_request_is_answered_with_the_message() -> None:
    message = answer(predict_request(256)).SerializeToString()
    with noop_server(message) as address:
        plan = LoadPlan(
            address, "closed", concurrency=8, duration_s=1.0, mix=RequestMix(distinct=8), checks=STATUS_ONLY
        )
        result = run_load(plan, prepared=prepare_load(plan, MODEL))
    assert result.failed == 0
    assert result.ok > 100
    assert result.answer_bytes == result.ok * (len(message) + 5)


def test_answers_that_are_not_of_the_request_are_found() -> None:
    with noop_server(pb.PredictResponse(model="demo", rows=256).SerializeToString()) as address:
        plan = LoadPlan(address, "constant", rate_per_s=100.0, duration_s=0.5, mix=RequestMix(distinct=8))
        result = run_load(plan, prepared=prepare_load(plan, MODEL))
    assert result.ok == 0
    assert result.check_failures.keys() == {"request id not echoed"}


def test_the_figures_say_whether_twice_a_rate_is_held(tmp_path: Path) -> None:
    figures = Figures("generator", console=Console(quiet=True))
    answered = answer(predict_request(256)).SerializeToString()
    generator_figures(figures, MODEL, answered, fastest_per_s=100.0, seconds=1.0)
    held, failed = figures.figures
    assert held.ok
    assert held.value == pytest.approx(2.1, abs=0.1)
    assert failed.value == 0
