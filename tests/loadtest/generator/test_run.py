"""Loads on real servers: what was done to the requests is what the result says."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import grpc
import psutil
import pytest

import serving as serving_package
from ghostless.client import UnreachableError
from ghostless.v1 import prediction_pb2 as pb
from loadtest.compare.cores import on_cores
from loadtest.errors import PlanError
from loadtest.generator.plan import LoadPlan, RateStep, RequestMix
from loadtest.generator.run import LoadProgress, forking, run_load
from tests.support.scripted_server import Failure, ScriptedServicer
from tests.support.scripted_servicers import EditingServicer, StallingServicer, serving

SMALL = RequestMix(candidates=(3, 9), distinct=16, unknown_share=0.3)


def _constant(address: str) -> LoadPlan:
    """200 requests/s for 2 s."""
    return LoadPlan(address, "constant", rate_per_s=200.0, duration_s=2.0, warm_up_s=0.0, mix=SMALL, deadline_s=5.0)


def test_a_stall_of_100_ms_shows_up_in_p99_as_it_must() -> None:
    # It meets the 20 requests that are due meanwhile, which wait at least 100, 95, ... 5 ms. The slowest 1% of 400 are
    # 4 requests, and p99 is what the next one waited: at least 80 ms, to the histogram's three digits.
    with serving(StallingServicer(stalled=100, stall_s=0.1)) as address:
        result = run_load(_constant(address))
    assert result.ok == result.sent == 400
    assert result.latency.percentile_s(100) >= 0.1
    assert result.latency.percentile_s(99) >= 0.0799


def test_a_stall_hides_in_a_closed_loop_since_nobody_asks_meanwhile() -> None:
    # A stall of 500 ms meets 100 of 400 requests in an open loop: a tenth of all wait at least 300 ms.
    with serving(StallingServicer(stalled=100, stall_s=0.5)) as address:
        opened = run_load(_constant(address))
    assert opened.latency.percentile_s(90) >= 0.299
    # With one under way it meets a single one, which no percentile up to the 99th sees.
    with serving(StallingServicer(stalled=100, stall_s=0.5)) as address:
        plan = LoadPlan(address, "closed", concurrency=1, max_requests=300, duration_s=60.0, warm_up_s=0.0, mix=SMALL)
        closed = run_load(plan)
    assert closed.sent >= 300
    assert closed.latency.percentile_s(100) >= 0.5
    assert closed.latency.percentile_s(99) < 0.299


def test_what_is_under_way_at_the_end_is_no_throughput() -> None:
    # Each answer takes 100 ms, four at a time: 40/s, of which the last four come after the end. Counted with them, two
    # rounds of answers in a quarter of a second would be 48/s.
    with serving(ScriptedServicer(script=[0.1] * 100), threads=4) as address:
        plan = LoadPlan(address, "closed", concurrency=4, duration_s=0.25, warm_up_s=0.0, mix=SMALL, deadline_s=5.0)
        result = run_load(plan)
    assert result.ok == 12
    assert result.ok_in_time == 8
    assert result.goodput_per_s == pytest.approx(32.0, rel=0.05)


def test_the_generators_processes_stay_on_the_cores_of_who_starts_them() -> None:
    forking()  # on all cores, before only one is left
    core = min(os.sched_getaffinity(0))
    used: list[set[int]] = []

    def look(progress: LoadProgress) -> None:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it may have ended just now
                parent = child.parent()
                if parent and any("forkserver" in word for word in parent.cmdline()):
                    used.append(set(child.cpu_affinity()))

    with serving(ScriptedServicer()) as address, on_cores(frozenset({core})):
        plan = LoadPlan(address, "constant", rate_per_s=50.0, duration_s=1.0, processes=2, mix=SMALL, interval_s=0.2)
        run_load(plan, look)
    assert len(used) >= 2
    assert all(cores == {core} for cores in used)


def test_the_generators_processes_import_what_their_parent_has_and_no_namesake(tmp_path: Path) -> None:
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "__init__.py").touch()
    # In a folder of its own, as an installed command is: where it is called is not on its path.
    command = tmp_path / "bin" / "command"
    command.parent.mkdir()
    say = "import serving; print(serving.__file__, flush=True)"
    command.write_text(f"""
from loadtest.generator.run import forking
if __name__ == "__main__":
    process = forking().Process(target=exec, args=({say!r},))
    process.start()
    process.join()
""")
    told = subprocess.run(
        [sys.executable, command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert Path(told.stdout.strip()).samefile(serving_package.__file__), told.stderr


def test_slow_answers_do_not_slow_the_arrivals() -> None:
    # Each answer takes 50 ms on one thread: 20/s at most, of 100/s that are due.
    servicer = ScriptedServicer(script=[0.05] * 1000)
    with serving(servicer, threads=1) as address:
        plan = LoadPlan(address, "constant", rate_per_s=100.0, duration_s=1.0, warm_up_s=0.0, mix=SMALL, deadline_s=0.4)
        result = run_load(plan)
    assert result.sent == 100
    assert result.ok <= 30
    assert result.errors.keys() <= {"DEADLINE_EXCEEDED", "CANCELLED"}
    assert result.ok + result.failed == 100


def test_processes_share_the_load_and_their_counts_add_up() -> None:
    seen: list[LoadProgress] = []
    with serving(ScriptedServicer()) as address:
        steps = (RateStep(1.0, 60.0), RateStep(1.0, 120.0))
        plan = LoadPlan(address, "constant", steps=steps, warm_up_s=0.5, processes=2, mix=SMALL, deadline_s=5.0)
        result = run_load(plan, seen.append)
    assert result.ok == result.sent == pytest.approx(180, abs=2)
    assert sum(interval.due for interval in result.timeline) == result.sent
    assert [interval.due for interval in result.timeline[:2]] == [pytest.approx(60, abs=2), pytest.approx(120, abs=2)]
    assert result.latency.count == result.lateness.count == result.ok
    assert result.versions == {3: result.ok}
    assert 3 * result.ok <= result.rows <= 9 * result.ok
    assert result.check_failures == {}
    assert result.checked >= 7, "each number of rows once at least"
    assert result.intended_per_s == 90.0
    assert result.generator_cpu_s > 0
    assert seen[-1].so_far.ok == result.ok


def test_requests_are_varied_and_each_has_an_id_of_its_own() -> None:
    servicer = ScriptedServicer()
    with serving(servicer) as address:
        run_load(LoadPlan(address, "closed", concurrency=4, duration_s=20.0, max_requests=120, processes=2, mix=SMALL))
    assert 100 <= len(servicer.requests) <= 124, "bounded in count; what is under way comes on top"
    assert len({request.request_id for request in servicer.requests}) == len(servicer.requests)
    rows = [len(request.candidates["video_id"].int64s.values) for request in servicer.requests]
    assert {min(rows), max(rows)} <= set(range(3, 10))
    assert len(set(rows)) > 3
    videos = [i for request in servicer.requests for i in request.candidates["video_id"].int64s.values]
    unknown = sum(video >= 500 for video in videos) / len(videos)
    assert 0.15 < unknown < 0.45
    users = {request.context["user_id"].int64s.values[0] for request in servicer.requests}
    assert len(users) > 5


def test_refusals_and_failures_are_counted_by_code() -> None:
    codes = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 12 + [grpc.StatusCode.INTERNAL] * 5
    # Details with letters that HPACK's Huffman code and gRPC's percent encoding both touch.
    servicer = ScriptedServicer(script=[Failure(code, f"queue full: {place}% ü") for place, code in enumerate(codes)])
    with serving(servicer) as address:
        plan = LoadPlan(address, "constant", rate_per_s=100.0, duration_s=0.5, warm_up_s=0.0, mix=SMALL, deadline_s=5.0)
        result = run_load(plan)
    assert result.errors == {"RESOURCE_EXHAUSTED": 12, "INTERNAL": 5}
    assert (result.ok, result.shed, result.failed) == (33, 12, 17)
    assert result.shed_latency.count == 12


def _poison(response: pb.PredictResponse) -> None:
    response.mean[0] = float("inf")


def test_wrong_answers_are_no_good_answers() -> None:
    with serving(EditingServicer(_poison)) as address:
        plan = LoadPlan(address, "constant", rate_per_s=50.0, duration_s=0.5, warm_up_s=0.0, mix=SMALL, deadline_s=5.0)
        result = run_load(plan)
    assert result.ok == 0
    assert result.check_failures == {"non-finite numbers": 25}
    assert result.failed == 25


def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(UnreachableError):
        run_load(LoadPlan("127.0.0.1:1", rate_per_s=1.0))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "needs a rate"),
        ({"rate_per_s": 1.0, "steps": (RateStep(1.0, 1.0),)}, "not both"),
        ({"arrivals": "closed"}, "concurrency 0"),
        ({"arrivals": "closed", "concurrency": 1, "rate_per_s": 2.0}, "no rate"),
        ({"rate_per_s": 1.0, "deadline_s": 0.0}, "deadline of 0 s"),
        ({"rate_per_s": 1.0, "processes": 9}, "9 processes, 8 connections"),
        ({"rate_per_s": -1.0}, "a rate of -1"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        LoadPlan("localhost:8500", **settings)  # type: ignore[arg-type]  # of many types
