"""Counting many values at once gives what observing them one by one would."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serving.telemetry.buckets import LogBuckets

BUCKETS = LogBuckets(-4, 3)


def test_bounds_are_half_octaves() -> None:
    assert LogBuckets(-1, 1).bounds == (0.5, 0.75, 1.0, 1.5, 2.0)


@given(st.lists(st.floats(0, 2.0**100, width=32), max_size=50))
def test_log_buckets_agree_with_looking_for_each_value(values: list[float]) -> None:
    array = np.array(values, np.float32)
    places = np.searchsorted(BUCKETS.bounds, array.astype(np.float64), side="left")
    assert BUCKETS.count(array).tolist() == np.bincount(places, minlength=BUCKETS.size).tolist()


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
