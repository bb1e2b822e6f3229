"""Counters, gauges and histograms show what prometheus_client's own would, here and to the process that is scraped."""

import threading
from pathlib import Path

import numpy as np
import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from serving.telemetry.collector import MergedValues, OwnValues
from serving.telemetry.instruments import Counter, Gauge, Histogram, Labelled
from serving.telemetry.values import Family, ValueMemory

BOUNDS = (0.0, 0.5, 1.0, 10.0)
HISTOGRAM = Family("values", "histogram", "Some values.", bounds=BOUNDS)


def samples(collector: Collector) -> dict[str, float]:
    families: list[Metric] = list(collector.collect())
    return {
        sample.name + sample.labels.get("le", ""): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(st.lists(st.lists(st.floats(-5, 50, allow_nan=False), max_size=20), max_size=4))
def test_observing_many_values_agrees_with_observing_each(calls: list[list[float]]) -> None:
    expected = prometheus_client.Histogram("values", "Some values.", buckets=BOUNDS, registry=CollectorRegistry())
    memory = ValueMemory()
    histogram = Labelled(Histogram, HISTOGRAM, memory).labels()
    for values in calls:
        histogram.observe(values)
        for value in values:
            expected.observe(value)
    assert samples(OwnValues(memory)) == pytest.approx(samples(expected))


def test_counts_added_at_once_are_those_of_the_buckets() -> None:
    memory = ValueMemory()
    Labelled(Histogram, HISTOGRAM, memory).labels().add(np.array([1, 0, 2, 0, 3]), 99.0)
    assert samples(OwnValues(memory)) == {
        **{"values_bucket0.0": 1, "values_bucket0.5": 1, "values_bucket1.0": 3, "values_bucket10.0": 3},
        **{"values_bucket+Inf": 6, "values_count": 6, "values_sum": 99.0},
    }


def test_counts_of_several_threads_are_exact_while_the_memory_grows(tmp_path: Path) -> None:
    memory = ValueMemory(tmp_path)
    family = Labelled(Counter, Family("calls", "counter", "Calls.", ("code",)), memory)
    ok = family.labels("OK")
    ok.inc(5)

    def call() -> None:
        for _ in range(2000):
            ok.inc()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(4000):
        family.labels(f"{number}-" + 300 * "x").inc()
    for thread in threads:
        thread.join()
    assert family.labels("OK") is ok
    assert len(list(tmp_path.iterdir())) > 1, "one file is not enough"
    registry = CollectorRegistry()
    registry.register(MergedValues(tmp_path))
    assert registry.get_sample_value("calls_total", {"code": "OK"}) == 8005
    assert registry.get_sample_value("calls_total", {"code": "3999-" + 300 * "x"}) == 1


def test_a_series_has_a_value_for_each_label() -> None:
    gauges = Labelled(Gauge, Family("up", "gauge", "Up.", ("endpoint",)), ValueMemory())
    with pytest.raises(ValueError, match=r"up has the labels \('endpoint',\), got \(\)"):
        gauges.labels()
