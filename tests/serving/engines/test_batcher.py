import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghostless.contract.arrays import Tensors
from ghostless.contract.errors import RequestError
from serving.engines.batcher import BatchLimits, merge, split, union
from serving.engines.interface import NO_DEADLINE, Job, all_finite, infer, run_until_idle
from serving.errors import EngineError, ExpiredError, OverloadedError
from tests.support.running import FakeEngine
from tests.support.waiting import eventually


class RecordedJob(Job):
    def __init__(self, engine: FakeEngine, values: list[float], deadline: float = NO_DEADLINE) -> None:
        inputs: Tensors = {"duration": np.array(values, np.float32), "item_id": np.arange(len(values))}
        super().__init__(engine.model, inputs, len(values), ("mean", "bins"), deadline)
        self.outputs: Tensors | None = None
        self.error: RequestError | None = None
        self.ended = threading.Event()
        self.waited = False

    def on_queued(self) -> None:
        self.waited = True

    def succeed(self, outputs: Tensors) -> None:
        assert self.outputs is None
        assert self.error is None
        self.outputs = outputs
        self.ended.set()

    def fail(self, error: RequestError) -> None:
        assert self.outputs is None
        assert self.error is None
        self.error = error
        self.ended.set()


def _engine(slots: int = 1, max_batch_rows: int = 8, queue_rows: int = 100, window_s: float = 0.0) -> FakeEngine:
    return FakeEngine(BatchLimits(slots, max_batch_rows, queue_rows, window_s))


def _run(engine: FakeEngine, *jobs: RecordedJob) -> None:
    for job in jobs:
        engine.submit(job)
    run_until_idle(engine)


def _in_thread(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def _occupy(engine: FakeEngine) -> tuple[RecordedJob, threading.Thread]:
    """A job that holds one slot until the gate opens."""
    engine.gate.clear()
    job = RecordedJob(engine, [0.0])
    thread = _in_thread(lambda: _run(engine, job))
    assert engine.started.acquire(timeout=5)
    return job, thread


def test_whoever_works_runs_the_oldest_batch_on_his_own_thread() -> None:
    engine = _engine()
    job = RecordedJob(engine, [1.0, 2.0])
    engine.submit(job)
    assert job.waited
    assert engine.runs == []
    assert engine.run_queued() is None
    assert job.outputs is not None
    assert job.outputs["mean"].tolist() == [1.0, 2.0]


def test_who_finds_no_free_slot_leaves_the_work_to_who_has_it() -> None:
    engine = _engine()
    _, thread = _occupy(engine)
    job = RecordedJob(engine, [1.0])
    engine.submit(job)
    assert engine.run_queued() is None
    assert job.outputs is None
    engine.gate.set()
    thread.join()
    assert job.outputs is not None


def test_a_request_larger_than_the_queue_is_taken_while_nothing_else_waits() -> None:
    engine = _engine(queue_rows=2)
    job = RecordedJob(engine, [1.0, 2.0, 3.0])
    _run(engine, job)
    assert job.outputs is not None


def test_what_queues_is_merged_up_to_the_row_limit_in_order() -> None:
    engine = _engine(max_batch_rows=4)
    _, thread = _occupy(engine)
    jobs = [RecordedJob(engine, values) for values in ([1.0, 2.0], [3.0], [4.0, 5.0], [6.0] * 9)]
    for job in jobs:
        engine.submit(job)
        assert job.waited
    engine.gate.set()
    thread.join()
    assert engine.runs == [[0.0], [1.0, 2.0, 3.0], [4.0, 5.0], [6.0] * 9]
    assert all(
        job.outputs is not None and job.outputs["mean"].tolist() == job.inputs["duration"].tolist() for job in jobs
    )


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=7), min_size=1, max_size=30),
    st.integers(1, 3),
    st.integers(1, 20),
    st.sampled_from([0.0, 0.002]),
)
def test_every_job_gets_exactly_its_own_rows_back_under_concurrency(
    rows: list[list[float]], slots: int, max_batch_rows: int, window_s: float
) -> None:
    engine = _engine(slots, max_batch_rows, queue_rows=10_000, window_s=window_s)
    jobs = [RecordedJob(engine, values) for values in rows]

    def run_each(mine: list[RecordedJob]) -> None:
        for job in mine:
            _run(engine, job)

    threads = [_in_thread(partial(run_each, jobs[i::4])) for i in range(4)]
    for thread in threads:
        thread.join()
    for job in jobs:
        assert job.ended.wait(5)
        assert job.outputs is not None
        assert job.outputs["mean"].tolist() == job.inputs["duration"].tolist()
        np.testing.assert_array_equal(job.outputs["bins"][:, 0], job.inputs["duration"])
    assert sorted(v for run in engine.runs for v in run) == sorted(v for values in rows for v in values)
    assert all(len(run) <= max(max_batch_rows, 7) for run in engine.runs)
    assert engine.batcher.queued_rows == 0


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_split_undoes_merge(sizes: list[int]) -> None:
    engine = _engine()
    jobs = [RecordedJob(engine, [float(i)] * size) for i, size in enumerate(sizes)]
    merged = merge(jobs)
    outputs = {"mean": merged["duration"], "bins": np.stack([merged["duration"]] * 2, axis=1)}
    for job, own in zip(jobs, split(jobs, outputs), strict=True):
        np.testing.assert_array_equal(own["mean"], job.inputs["duration"])
        assert own["bins"].shape == (job.rows, 2)


def test_a_batch_fetches_what_any_of_its_jobs_wants() -> None:
    engine = _engine()
    jobs = [RecordedJob(engine, [1.0]), RecordedJob(engine, [2.0])]
    jobs[1].wanted = ("mean", "epistemic")
    assert union(jobs) == ("mean", "bins", "epistemic")


def test_expired_and_cancelled_jobs_never_run() -> None:
    engine = _engine()
    _, thread = _occupy(engine)
    deadline = time.time() + 0.05
    expired = RecordedJob(engine, [1.0], deadline=deadline)
    cancelled = RecordedJob(engine, [2.0])
    good = RecordedJob(engine, [3.0], deadline=time.time() + 60)
    for job in (expired, cancelled, good):
        engine.submit(job)
    engine.cancel(cancelled)
    assert engine.batcher.queued_rows == 2
    eventually(lambda: time.time() > deadline, "the end of the deadline")
    engine.gate.set()
    thread.join()
    assert engine.runs == [[0.0], [3.0]]
    assert isinstance(expired.error, ExpiredError)
    assert cancelled.error is None
    assert cancelled.outputs is None
    assert engine.batcher.queued_rows == 0
    with pytest.raises(ExpiredError):
        engine.submit(RecordedJob(engine, [4.0], deadline=time.time() - 1))
    assert len(engine.runs) == 2


def test_over_the_bound_it_is_refused_at_once_with_a_hint() -> None:
    engine = _engine(queue_rows=5)
    infer(engine, "demo", 0, {"duration": np.ones(3, np.float32)})  # so that it knows what a row costs
    _, thread = _occupy(engine)
    engine.submit(RecordedJob(engine, [1.0] * 5))
    started = time.monotonic()
    with pytest.raises(OverloadedError, match=r"5 rows are waiting and 1 more would exceed the queue of 5") as refused:
        engine.submit(RecordedJob(engine, [2.0]))
    assert time.monotonic() - started < 0.1
    assert refused.value.retry_after_s >= 0.001
    engine.gate.set()
    thread.join()
    engine.submit(RecordedJob(engine, [2.0]))


def test_while_a_refused_request_has_no_room_others_are_refused_unseen() -> None:
    engine = _engine(queue_rows=8, max_batch_rows=4)
    engine.submit(RecordedJob(engine, [1.0] * 4))
    engine.submit(RecordedJob(engine, [2.0]))
    assert engine.check_overload() is None, "nobody was refused yet"
    with pytest.raises(OverloadedError):
        engine.submit(RecordedJob(engine, [3.0] * 4))
    refused = engine.check_overload()
    assert isinstance(refused, OverloadedError)
    assert "the queue of 8 rows is full" in str(refused)
    assert refused.retry_after_s >= 0.001
    assert engine.run_queued() == 0.0
    assert engine.check_overload() is None, "4 of the 5 rows ran, so there is room for 4 again"
    engine.submit(RecordedJob(engine, [3.0] * 4))


def test_a_full_queue_opens_again_for_several_requests() -> None:
    """The one that fills it again is read only to be refused: with room for one at a time, every other would be."""
    engine = _engine(max_batch_rows=4, queue_rows=80)
    for _ in range(20):
        engine.submit(RecordedJob(engine, [1.0] * 4))
    with pytest.raises(OverloadedError):
        engine.submit(RecordedJob(engine, [1.0]))
    for free_rows in (4, 8, 12, 16):
        assert engine.run_queued() == 0.0
        assert engine.check_overload() is not None, f"{free_rows} of 80 rows are free"
    assert engine.run_queued() == 0.0
    assert engine.check_overload() is None, "a quarter is"


def test_the_window_waits_for_more_rows_but_not_longer_than_a_full_batch() -> None:
    engine = _engine(max_batch_rows=3, window_s=5.0)
    jobs = [RecordedJob(engine, [float(i)]) for i in range(3)]
    started = time.monotonic()
    for job in jobs[:2]:
        engine.submit(job)
    due = engine.run_queued()
    assert due is not None
    assert 4 < due <= 5
    _run(engine, jobs[2])
    assert time.monotonic() - started < 2
    assert len(engine.runs) == 1
    assert sorted(engine.runs[0]) == [0.0, 1.0, 2.0]


def test_the_window_closes() -> None:
    engine = _engine(window_s=0.05)
    job = RecordedJob(engine, [1.0])
    started = time.monotonic()
    _run(engine, job)
    assert 0.04 < time.monotonic() - started < 1
    assert engine.runs == [[1.0]]


def test_a_failing_run_fails_its_jobs_and_frees_the_slot() -> None:
    engine = _engine()
    broken = RecordedJob(engine, [1.0])
    broken.inputs = {}
    _run(engine, broken)
    assert isinstance(broken.error, EngineError)
    good = RecordedJob(engine, [2.0])
    _run(engine, good)
    assert good.outputs is not None


def test_a_job_that_breaks_while_it_is_told_does_not_cost_the_slot() -> None:
    class Breaking(RecordedJob):
        def succeed(self, outputs: Tensors) -> None:
            raise RuntimeError("broken pipe")

        def fail(self, error: RequestError) -> None:
            raise RuntimeError("broken pipe")

    engine = _engine()
    _run(engine, Breaking(engine, [1.0]))
    good = RecordedJob(engine, [2.0])
    _run(engine, good)
    assert good.outputs is not None


def test_a_non_finite_output_is_the_engines_fault() -> None:
    engine = _engine()
    engine.poison = float("nan")
    job = RecordedJob(engine, [1.0])
    _run(engine, job)
    assert isinstance(job.error, EngineError)
    assert "non-finite" in str(job.error)


def test_a_non_finite_row_fails_its_own_request_and_none_that_was_merged_with_it() -> None:
    engine = _engine()
    _, thread = _occupy(engine)
    good, bad, other = jobs = [RecordedJob(engine, [value]) for value in (1.0, float("nan"), 2.0)]
    for job in jobs:
        engine.submit(job)
    engine.gate.set()
    thread.join()
    assert len(engine.runs) == 2
    assert isinstance(bad.error, EngineError)
    for job in (good, other):
        assert job.outputs is not None
        assert np.isfinite(job.outputs["mean"]).all()


@np.errstate(over="ignore", invalid="ignore")
@pytest.mark.parametrize("size", [7, 10_000, 10_001, 35_000])
def test_all_finite_looks_at_every_value(size: int) -> None:
    values = np.full((size, 1), 1e30, np.float32)  # whose squares overflow
    assert all_finite(values)
    for place in (0, size - 1):
        for wrong in (np.nan, np.inf, -np.inf):
            spoiled = np.ones(size, np.float32)
            spoiled[place] = wrong
            assert not all_finite(spoiled)
