"""Numbers outside their training range, counted by feature, as the recorder hands them over."""

from dataclasses import replace

import numpy as np
import pytest

from ghostless.contract.arrays import Tensors
from serving.engines.interface import ModelVersion
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.ranges import RangeObserver
from serving.telemetry.record import CallRecord
from tests.support.onnx_models import CR_OUTPUTS, SMALL, metadata_of

RANGES = {"hour": (0.0, 23.5), "duration": (5.0, 60.0)}
LABELS = {"model": "demo", "version": "3", "head": "cr"}


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


def model(ranges: dict[str, tuple[float, float]]) -> ModelVersion:
    return ModelVersion("demo", 3, replace(metadata_of(SMALL), ranges=ranges), CR_OUTPUTS, {})


def record(of: ModelVersion, inputs: Tensors, code: str = "OK", sampled: bool = True) -> CallRecord:
    made = CallRecord("Predict", 0.0)
    made.model, made.inputs, made.code, made.is_sampled = of, inputs, code, sampled
    return made


def rows(durations: list[float], hour: float = 1.0) -> Tensors:
    return {
        "user_id": np.ones(len(durations), np.int64),
        "hour": np.full(len(durations), hour, np.float32),
        "item_id": np.ones(len(durations), np.int64),
        "duration": np.array(durations, np.float32),
    }


def counted(metrics: ServerMetrics, feature: str) -> float | None:
    labels = {**LABELS, "feature": feature}
    return metrics.registry.get_sample_value("ghostless_out_of_range_rows_total", labels)


def test_values_below_and_above_count_and_the_ends_do_not(metrics: ServerMetrics) -> None:
    served, observer = model(RANGES), RangeObserver(metrics.uncertainty)
    observer.take([record(served, rows([5.0, 60.0, 4.999, 60.001])), record(served, rows([-1.0, 30.0]))], 0.0)
    observer.take([record(served, rows([7.0, 8.0], hour=24.0))], 0.0)
    assert counted(metrics, "duration") == 3
    assert counted(metrics, "hour") == 2


def test_only_answers_that_are_sampled_count(metrics: ServerMetrics) -> None:
    served, observer = model(RANGES), RangeObserver(metrics.uncertainty)
    observer.take([record(served, rows([1.0]), code="INTERNAL"), record(served, rows([1.0]), sampled=False)], 0.0)
    assert not counted(metrics, "duration")
    assert observer.needs_inputs(stored=False, sampled=True)
    assert not observer.needs_inputs(stored=True, sampled=False)


def test_a_unit_change_leaves_the_range_entirely(metrics: ServerMetrics) -> None:
    served, observer = model({"duration": (5_000.0, 300_000.0)}), RangeObserver(metrics.uncertainty)
    random = np.random.default_rng(0)
    milliseconds = random.uniform(5_000.0, 300_000.0, 1000)
    observer.take([record(served, rows(milliseconds.tolist()))], 0.0)
    assert counted(metrics, "duration") == 0
    observer.take([record(served, rows((milliseconds / 1000).tolist()))], 0.0)
    assert counted(metrics, "duration") == 1000


def test_a_file_without_ranges_counts_nothing(metrics: ServerMetrics) -> None:
    RangeObserver(metrics.uncertainty).take([record(model({}), rows([1e9]))], 0.0)
    assert counted(metrics, "duration") is None
