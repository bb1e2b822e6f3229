"""Gauges say how things are now, and no more what they were."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from serving.engines.batcher import BatchLimits
from serving.engines.interface import (
    EndpointState,
    EngineStatistics,
    ModelStatus,
    ModelVersion,
    VersionState,
    VersionStatus,
)
from serving.telemetry.gauges import Gauges
from serving.telemetry.metrics import ServerMetrics
from tests.support.running import FakeEngine


class RollingEngine(FakeEngine):
    """Versions 1 and 2 of "demo", the one in service as told, on Tritons as told."""

    def __init__(self) -> None:
        super().__init__(BatchLimits(1, 1, 1))
        self.in_service = 1
        self.states: dict[str, EndpointState] = {}
        self.queued_rows = 0
        self.can_serve = True

    def resolve(self, model: str, version: int) -> ModelVersion:
        return ModelVersion(model, version, self.model.metadata, self.model.outputs, {})

    def models(self) -> Sequence[ModelStatus]:
        versions = [VersionStatus(v, VersionState.READY, v == self.in_service) for v in (1, 2)]
        failed = VersionStatus(3, VersionState.FAILED, False, "damaged")
        return [ModelStatus("demo", (*versions, failed), self.resolve("demo", self.in_service), wanted=3)]

    def is_ready(self) -> bool:
        return self.can_serve

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(self.queued_rows, endpoints=self.states)


@pytest.fixture
def engine() -> RollingEngine:
    return RollingEngine()


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


@pytest.fixture
def gauges(engine: RollingEngine, metrics: ServerMetrics) -> Gauges:
    return Gauges(engine, metrics.requests, metrics.models)


def value(metrics: ServerMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"ghostless_{name}", labels)


def info(metrics: ServerMetrics, version: int, in_service: str) -> float | None:
    labels = {"model": "demo", "head": "cr", "model_method": "vbll", "version": str(version), "in_service": in_service}
    return value(metrics, "model_info", **labels)


def test_a_roll_out_moves_what_is_in_service(engine: RollingEngine, metrics: ServerMetrics, gauges: Gauges) -> None:
    gauges.update()
    assert [info(metrics, 1, "true"), info(metrics, 2, "false")] == [1, 1]
    assert [info(metrics, 2, "true"), info(metrics, 3, "false")] == [None, None]
    engine.in_service = 2
    gauges.update()
    assert [info(metrics, 1, "true"), info(metrics, 1, "false")] == [0, 1]
    assert [info(metrics, 2, "true"), info(metrics, 2, "false")] == [1, 0]


def test_what_is_wanted_what_is_served_and_what_can_not_be(
    engine: RollingEngine, metrics: ServerMetrics, gauges: Gauges
) -> None:
    gauges.update()
    assert value(metrics, "model_wanted_version", model="demo") == 3
    assert value(metrics, "model_served_version", model="demo") == 1
    assert value(metrics, "model_version_failed", model="demo", version="3") == 1
    assert value(metrics, "model_version_failed", model="demo", version="1") is None


def test_the_splits_verdict_is_that_of_the_file(engine: RollingEngine, metrics: ServerMetrics, gauges: Gauges) -> None:
    labels = {"model": "demo", "head": "cr", "version": "1"}
    gauges.update()
    assert value(metrics, "pair_verdict", verdict="unverified", **labels) == 1
    described = replace(engine.model.metadata, pairs={"verdict": "agrees", "rows": 100})
    engine.model = ModelVersion("demo", 1, described, engine.model.outputs, {})
    gauges.update()
    assert value(metrics, "pair_verdict", verdict="agrees", **labels) == 1
    assert value(metrics, "pair_verdict", verdict="unverified", **labels) == 0


def test_queue_readiness_and_memory_are_read(engine: RollingEngine, metrics: ServerMetrics, gauges: Gauges) -> None:
    engine.queued_rows = 7
    gauges.update()
    assert (value(metrics, "queue_rows"), value(metrics, "ready"), value(metrics, "workers")) == (7, 1, 1)
    engine.queued_rows, engine.can_serve = 0, False
    gauges.update()
    assert (value(metrics, "queue_rows"), value(metrics, "ready")) == (0, 0)


def test_endpoints_come_fail_and_leave(engine: RollingEngine, metrics: ServerMetrics, gauges: Gauges) -> None:
    engine.states = {"a:1": EndpointState(True, 0, 0), "b:1": EndpointState(True, 0, 2)}
    gauges.update()
    engine.states = {"a:1": EndpointState(False, 2, 5)}
    gauges.update()
    gauges.update()
    assert value(metrics, "endpoint_up", endpoint="a:1") == 0
    assert value(metrics, "breaker_state", endpoint="a:1") == 2
    assert value(metrics, "endpoint_retries_total", endpoint="a:1") == 5
    assert value(metrics, "endpoint_retries_total", endpoint="b:1") == 2
    # One that left is neither up nor down: an alarm on 0 must stay silent.
    left = value(metrics, "endpoint_up", endpoint="b:1")
    assert left is not None
    assert math.isnan(left)
