"""Limits of rows, in one worker and over several."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serving.security.identities import Identity
from serving.security.row_meters import RowMeter, RowMeters

EVERYTHING = frozenset(("predict",))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _counts() -> "memoryview[int]":
    return memoryview(bytearray(16)).cast("q")


def test_a_rate_holds_on_average_and_what_is_owed_is_waited_for() -> None:
    clock = Clock()
    meter, identity = RowMeter(_counts(), clock), Identity("a", EVERYTHING, ("*",), rows_per_s=100)
    run = 0
    for _ in range(1000):
        if not meter.wait_s(identity):
            meter.begin(30)
            meter.end(30)
            run += 30
        clock.now += 0.01
    # A second's worth at first, then 100 a second for 10 s, and at most one request too much.
    assert 1100 <= run <= 1130
    while not meter.wait_s(identity):
        meter.begin(30)
    wait = meter.wait_s(identity)
    clock.now += wait - 0.02
    assert meter.wait_s(identity)
    clock.now += 0.03
    assert not meter.wait_s(identity)


def test_workers_draw_from_one_bucket() -> None:
    clock = Clock()
    counts = [_counts(), _counts()]
    meters = [RowMeter(each, clock) for each in counts]
    identity = Identity("a", EVERYTHING, ("*",), rows_per_s=100)
    for meter, other in zip(meters, reversed(counts), strict=True):
        meter.share([other])
    run = 0
    for step in range(2000):
        meter = meters[step % 2]
        if not meter.wait_s(identity):
            meter.begin(10)
            meter.end(10)
            run += 10
        clock.now += 0.005
    assert 1080 <= run <= 1120


def test_a_worker_that_comes_or_goes_changes_nothing_for_the_others() -> None:
    clock = Clock()
    meter, identity = RowMeter(_counts(), clock), Identity("a", EVERYTHING, ("*",), rows_per_s=100)
    assert not meter.wait_s(identity)
    late = _counts()
    late[0] = 1_000_000
    meter.share([late])
    assert not meter.wait_s(identity)
    late[0] += 150
    assert meter.wait_s(identity) > 0.4
    meter.share([])
    clock.now += 1.0
    assert not meter.wait_s(identity)


def test_rows_at_once_count_over_all_workers() -> None:
    other = _counts()
    meter, identity = RowMeter(_counts()), Identity("a", EVERYTHING, ("*",), concurrent_rows=100)
    meter.share([other])
    meter.begin(60)
    assert meter.has_room(identity, 40)
    assert not meter.has_room(identity, 41)
    other[1] = 10
    assert not meter.has_room(identity, 40)
    meter.end(60)
    assert meter.has_room(identity, 90)


# A worker that runs rows and waits to be ended.
def test_room_is_taken_in_one_step() -> None:
    """Of many threads that begin at once, no more begin than there is room for."""
    meter, identity = RowMeter(_counts()), Identity("a", EVERYTHING, ("*",), concurrent_rows=100)
    with ThreadPoolExecutor(8) as pool:
        begun = sum(pool.map(lambda _: meter.begin_within(identity, 1), range(2000)))
    assert begun == 100
    meter.end(1)
    assert meter.begin_within(identity, 1)


WORKER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from serving.security.identities import Identity
from serving.security.row_meters import RowMeters
RowMeters(Path(sys.argv[1])).of(Identity("a", frozenset(), ())).begin(70)
print("running", flush=True)
sys.stdin.read()
"""


def test_processes_see_each_other_and_forget_those_that_ended(tmp_path: Path) -> None:
    identity = Identity("a", EVERYTHING, ("*",), concurrent_rows=100)
    meters = RowMeters(tmp_path / "rows")
    meter = meters.of(identity)
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path / "rows")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "running\n"
        meters.find_peers()
        assert not meter.has_room(identity, 31)
        assert meter.has_room(identity, 30)
        assert meters.of(Identity("b", EVERYTHING, ("*",), concurrent_rows=100)).has_room(identity, 100)
        worker.kill()
    meters.find_peers()
    assert meter.has_room(identity, 100)
    assert len(list((tmp_path / "rows").iterdir())) == 2


@pytest.mark.parametrize("directory", [True, False])
def test_an_identity_has_one_meter(tmp_path: Path, directory: bool) -> None:
    meters = RowMeters(tmp_path / "rows" if directory else None)
    first = meters.of(Identity("a", EVERYTHING, ("*",), rows_per_s=1))
    assert meters.of(Identity("a", EVERYTHING, ("*",), rows_per_s=5)) is first
