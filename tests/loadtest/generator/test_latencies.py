import pickle

import numpy as np
import pytest

from loadtest.generator.latencies import Latencies


def _recorded(values: np.ndarray) -> Latencies:
    latencies = Latencies()
    latencies.record(values)
    return latencies


def test_percentiles_hold_three_digits_over_the_whole_range() -> None:
    values = np.exp(np.random.default_rng(0).uniform(np.log(10), np.log(60e6), 20_000)).astype(np.int64)
    latencies = _recorded(values)
    for percentile in (1, 50, 99, 99.9):
        exact = np.percentile(values, percentile, method="inverted_cdf") / 1e6
        assert latencies.percentile_s(percentile) == pytest.approx(exact, rel=1e-3)
    assert latencies.percentile_s(100) == pytest.approx(values.max() / 1e6, rel=1e-3)
    assert latencies.within(0.01) == pytest.approx((values <= 10_000).mean(), abs=1e-3)


def test_merged_parts_are_the_whole() -> None:
    values = np.random.default_rng(1).integers(1, 1_000_000, 3000)
    whole, merged = _recorded(values), Latencies()
    merged.merge(pickle.loads(pickle.dumps(_recorded(part))) for part in np.array_split(values, 3))
    assert merged.count == whole.count == 3000
    assert merged.as_json() == {**whole.as_json(), "hdr_histogram": merged.encode()}
    assert Latencies.decode(whole.encode()).percentile_s(75) == whole.percentile_s(75)


def test_nothing_recorded_is_nan_and_what_is_out_of_range_counts_as_its_end() -> None:
    assert np.isnan([Latencies().percentile_s(50), Latencies().mean_s(), Latencies().within(1.0)]).all()
    latencies = _recorded(np.array([-5, 0, 10**12]))
    assert latencies.count == 3
    assert latencies.percentile_s(1) == 1e-6
    assert latencies.percentile_s(100) == pytest.approx(120.0, rel=1e-3)
