"""Five calls against the same five networks fused into one graph, and what happens when one of the five fails."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from ghostless.client import Client
from ghostless.contract import metadata
from ghostless.contract.arrays import Tensors
from ghostless.contract.errors import InvalidModelError, RequestError
from loadtest.compare.fan_out import FanOutEngine, join_members
from loadtest.compare.fan_out_server import main as fan_out_server
from loadtest.compare.variants import HeadName, Variant
from loadtest.server_process import running_server
from loadtest.workload import find_model
from serving.engines.batcher import BatchLimits
from serving.engines.embedded import EmbeddedEngine
from serving.engines.interface import Engine, Job, ModelVersion, infer, run_until_idle
from serving.errors import EngineError, NotFoundError, OverloadedError
from tests.support.ensembles import FUSED, MEMBERS, export_ensemble
from tests.support.running import FakeEngine, graph_inputs, predict_request, serving

LIMITS = BatchLimits(slots=2, max_batch_rows=256, queue_rows=10_000)


@pytest.fixture(scope="module", params=get_args(HeadName))
def roots(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    export_ensemble(request.param, folder / "members", folder / "fused")
    return folder / "members", folder / "fused"


@pytest.fixture
def engines(roots: tuple[Path, Path]) -> Iterator[tuple[Engine, Engine]]:
    members, fused = (EmbeddedEngine(root, LIMITS) for root in roots)
    members.start()
    fused.start()
    yield FanOutEngine(members, {"five": MEMBERS}), fused
    members.stop()
    fused.stop()


def test_five_calls_answer_as_the_fused_graph_does(engines: tuple[Engine, Engine], roots: tuple[Path, Path]) -> None:
    five, fused = engines
    feeds = find_model(roots[1], FUSED).rows(100, seed=3).feeds()
    called, expected = infer(five, "five", 0, feeds), infer(fused, FUSED, 0, feeds)
    assert set(called) == set(expected) - {metadata.LOGIT_VARIANCE}
    for name, values in called.items():
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)
    assert (called[metadata.EPISTEMIC] > 0).all()


def test_a_client_gets_the_whole_distribution(engines: tuple[Engine, Engine], roots: tuple[Path, Path]) -> None:
    five, fused = engines
    rows = find_model(roots[1], FUSED).rows(20, seed=1)
    with serving(five) as running, Client(running.address) as client:
        assert client.get_model("").method == "ensemble"
        arguments = rows.arguments("five")
        arguments["quantile_levels"], arguments["thresholds"] = [0.33], [1.0]
        answer = client.predict(**arguments)
    expected = infer(fused, FUSED, 0, rows.feeds())
    assert answer.model == "five"
    assert answer.exceedance is not None
    assert answer.bins is not None
    assert answer.mean is not None
    np.testing.assert_allclose(answer.mean, expected[metadata.MEAN], rtol=1e-4)
    np.testing.assert_allclose(answer.bins, expected[metadata.BINS], atol=1e-5)
    assert ((answer.exceedance > 0) & (answer.exceedance < 1)).all()


def test_its_server_is_the_serve_command_with_another_engine(variants: list[Variant]) -> None:
    five = next(variant for variant in variants if variant.members)
    group = f"five={','.join(five.members)}"
    module = fan_out_server.__module__
    rows = find_model(five.repository, "").rows(20, seed=1)
    with running_server(five.repository, "--ensemble", group, "--workers", "2", module=module) as server:
        with Client(server.address) as client:
            assert [model.name for model in client.list_models().models] == ["five"]
            answer = client.predict(**rows.arguments(""))
        assert not server.torch_libraries()
    assert answer.epistemic is not None
    assert (answer.epistemic > 0).all()


class _EndingsJob(Job):
    """Remembers how it ended."""

    __slots__ = ("endings",)

    def __init__(self, model: ModelVersion, inputs: Tensors, rows: int) -> None:
        super().__init__(model, inputs, rows, model.outputs)
        self.endings: list[Tensors | RequestError] = []

    def succeed(self, outputs: Tensors) -> None:
        self.endings.append(outputs)

    def fail(self, error: RequestError) -> None:
        self.endings.append(error)

    def on_queued(self) -> None:
        pass


class _Deterministic(FakeEngine):
    """A fake model of which there are as many as one wants; `failing` says which of their jobs fail, and how."""

    def __init__(self, limits: BatchLimits) -> None:
        super().__init__(limits)
        described = replace(self.model.metadata, method="deterministic")
        self.named = {name: replace(self.model, name=name, metadata=described) for name in ("a", "b", "c")}
        self.refused = ""
        self.failing = ""
        self.cancelled: list[str] = []

    def resolve(self, model: str, version: int) -> ModelVersion:
        return self.named[model]

    def submit(self, job: Job) -> None:
        if job.model.name == self.refused:
            raise OverloadedError("no room", retry_after_s=0.1)
        if job.model.name == self.failing:
            job.fail(EngineError("broken"))
            return
        super().submit(job)

    def cancel(self, job: Job) -> None:
        self.cancelled.append(job.model.name)
        super().cancel(job)


@pytest.fixture
def inner() -> _Deterministic:
    return _Deterministic(LIMITS)


def told(engine: FanOutEngine) -> _EndingsJob:
    return _EndingsJob(engine.resolve("abc", 0), graph_inputs(predict_request(4)), 4)


def fan_out(inner: Engine) -> FanOutEngine:
    return FanOutEngine(inner, {"abc": ("a", "b", "c")})


def test_a_job_ends_once_all_members_answered(inner: _Deterministic) -> None:
    engine = fan_out(inner)
    job = told(engine)
    engine.submit(job)
    run_until_idle(engine)
    assert len(job.endings) == 1
    assert not isinstance(job.endings[0], RequestError)
    assert len(inner.runs) == 3
    assert not inner.cancelled


def test_a_refused_member_refuses_the_request_and_withdraws_the_rest(inner: _Deterministic) -> None:
    inner.refused = "b"
    engine = fan_out(inner)
    job = told(engine)
    with pytest.raises(OverloadedError):
        engine.submit(job)
    assert job.endings == []
    assert inner.cancelled == ["a", "b", "c"]


def test_a_failed_member_fails_the_request_once(inner: _Deterministic) -> None:
    inner.failing = "b"
    engine = fan_out(inner)
    job = told(engine)
    engine.submit(job)
    run_until_idle(engine)
    assert [str(ending) for ending in job.endings] == ["broken"]


def test_a_client_that_left_cancels_every_member_that_has_not_answered(inner: _Deterministic) -> None:
    inner.failing = ""
    engine = fan_out(inner)
    job = told(engine)
    engine.cancel(job)
    assert inner.cancelled == []
    assert job.cancelled


def test_an_ensemble_stays_the_same_object_until_a_member_changes(inner: _Deterministic) -> None:
    engine = fan_out(inner)
    first = engine.resolve("abc", 0)
    assert engine.resolve("abc", 0) is first
    inner.named["c"] = replace(inner.named["c"], version=2)
    assert engine.resolve("abc", 0) is not first


def test_strange_names_and_unlike_members_are_refused(inner: _Deterministic) -> None:
    with pytest.raises(NotFoundError, match="no ensemble 'xyz'; available: abc"):
        fan_out(inner).resolve("xyz", 0)
    a, b = inner.named["a"], inner.named["b"]
    moved = replace(b, metadata=replace(b.metadata, knots=tuple(knot + 0.1 for knot in b.metadata.knots)))
    with pytest.raises(InvalidModelError, match="can't be averaged"):
        join_members("ab", (a, moved))
    with pytest.raises(InvalidModelError, match="member 'b' is vbll"):
        join_members("ab", (a, replace(b, metadata=replace(b.metadata, method="vbll"))))
