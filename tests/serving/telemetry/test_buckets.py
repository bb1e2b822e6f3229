"""Counting many values at once gives what observing them one by one would."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from serving.telemetry.buckets import LogBuckets, add_counts, observe_all

BUCKETS = LogBuckets(-4, 3)


def histogram(bounds: tuple[float, ...] = BUCKETS.bounds) -> Histogram:
    return Histogram("values", "Some values.", buckets=bounds, registry=CollectorRegistry())


def samples(metric: Histogram) -> dict[str, float]:
    (family,) = metric.collect()
    return {
        sample.name + sample.labels.get("le", ""): sample.value
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def observed_one_by_one(values: list[float], bounds: tuple[float, ...] = BUCKETS.bounds) -> dict[str, float]:
    metric = histogram(bounds)
    for value in values:
        metric.observe(value)
    return samples(metric)


def test_bounds_are_half_octaves() -> None:
    assert LogBuckets(-1, 1).bounds == (0.5, 0.75, 1.0, 1.5, 2.0)


@given(st.lists(st.floats(0, 2.0**100, width=32), max_size=50))
def test_log_buckets_agree_with_observing_each_value(values: list[float]) -> None:
    array = np.array(values, np.float32)
    metric = histogram()
    add_counts(metric, BUCKETS.count(array), float(array.sum(dtype=np.float64)))
    assert samples(metric) == pytest.approx(observed_one_by_one(array.astype(np.float64).tolist()))


def test_values_on_a_bound_belong_to_the_bucket_that_ends_there() -> None:
    edges = np.array(BUCKETS.bounds, np.float32)
    assert BUCKETS.places(edges).tolist() == list(range(len(edges)))
    above = np.nextafter(edges, np.float32(np.inf))
    assert BUCKETS.places(above).tolist() == list(range(1, len(edges) + 1))


def test_zero_of_either_sign_and_the_smallest_floats_are_in_the_first_bucket() -> None:
    assert BUCKETS.places(np.array([0.0, -0.0, 1e-45, 1e-38], np.float32)).tolist() == [0, 0, 0, 0]


def test_a_column_of_a_matrix_can_be_counted() -> None:
    matrix = np.random.default_rng(0).uniform(0, 20, (100, 3)).astype(np.float32)
    assert BUCKETS.count(matrix[:, 1]).tolist() == BUCKETS.count(matrix[:, 1].copy()).tolist()


@given(st.lists(st.floats(-5, 50, allow_nan=False), max_size=50))
def test_observe_all_agrees_with_observing_each_value(values: list[float]) -> None:
    bounds = (0.0, 0.5, 1.0, 10.0)
    metric = histogram(bounds)
    observe_all(metric, values)
    assert samples(metric) == pytest.approx(observed_one_by_one(values, bounds))
