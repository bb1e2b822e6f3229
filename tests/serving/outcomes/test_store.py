import threading
from collections.abc import Sequence

import numpy as np
import psutil

from ghostless.contract import metadata
from serving.engines.interface import ModelVersion
from serving.outcomes.store import Lookup, OutcomeResult, OutcomeStore, StoredPrediction
from serving.outcomes.stored_distribution import KEYS, StoredDistribution, distribution_to_store
from tests.support.onnx_models import CR_OUTPUTS, SMALL, metadata_of

ROOMY = 1_000_000
JOINED, LATE, UNKNOWN, DUPLICATE, INVALID = (
    OutcomeResult.JOINED,
    OutcomeResult.LATE,
    OutcomeResult.UNKNOWN,
    OutcomeResult.DUPLICATE,
    OutcomeResult.INVALID,
)


def stored_of(version: int = 1) -> StoredDistribution:
    found = distribution_to_store(ModelVersion("demo", version, metadata_of(SMALL), CR_OUTPUTS, {}))
    assert found is not None
    return found


STORED = stored_of()


def prediction(request_id: str, rows: int = 3, time: float = 100.0, value: float = 0.0) -> StoredPrediction:
    """Row i's outputs are all `value` + i."""
    column = value + np.arange(rows, dtype=np.float32)[:, None]
    outputs = {
        name: np.repeat(column.astype(np.uint32 if name in KEYS else np.float32), width, axis=1)
        for name, width in STORED.outputs.items()
    }
    return StoredPrediction(request_id, rows, time, outputs)


def look_up(store: OutcomeStore, outcomes: Sequence[tuple[str, int]], now: float = 101.0) -> Lookup:
    return store.look_up([name for name, _ in outcomes], np.array([row for _, row in outcomes], np.int64), now)


def test_each_row_is_found_once_with_its_own_values() -> None:
    store = OutcomeStore(ROOMY, 60.0)
    store.add(STORED, [prediction("a", value=10.0), prediction("b", value=20.0)], 100.0)
    found = look_up(store, [("b", 2), ("a", 0), ("c", 0), ("b", 2), ("a", 3)], now=104.5)
    assert found.results.tolist() == [JOINED, JOINED, UNKNOWN, DUPLICATE, INVALID]
    (matched,) = found.matched
    assert dict(zip(matched.places.tolist(), matched.outputs[metadata.CDF][:, 0].tolist(), strict=True)) == {
        0: 22.0,
        1: 10.0,
    }
    assert matched.lags.tolist() == [4.5, 4.5]
    assert found.counts == {(JOINED, STORED.labels): 2, (DUPLICATE, STORED.labels): 1, (INVALID, STORED.labels): 1}
    assert look_up(store, [("b", 2), ("b", 1)]).results.tolist() == [DUPLICATE, JOINED]


def test_age_is_exact_and_what_was_forgotten_is_late_not_unknown() -> None:
    store = OutcomeStore(ROOMY, 60.0)
    store.add(STORED, [prediction("old", time=100.0), prediction("young", time=130.0)], 130.0)
    assert look_up(store, [("old", 0)], now=160.0).results.tolist() == [JOINED]
    # Both still lie in one segment.
    assert look_up(store, [("old", 1), ("young", 1)], now=161.0).results.tolist() == [LATE, JOINED]
    assert store.rows == 6
    found = look_up(store, [("old", 2), ("young", 2), ("never", 0)], now=1000.0)
    assert found.results.tolist() == [LATE, LATE, UNKNOWN]
    assert found.counts == {(LATE, STORED.labels): 2}
    assert store.rows == store.bytes == 0


def test_bytes_are_bounded_and_the_oldest_go_first() -> None:
    store = OutcomeStore(200_000, 1e9)
    for number in range(500):
        store.add(STORED, [prediction(f"{number}", rows=50, time=float(number))], float(number))
        assert store.bytes <= 200_000
    results = look_up(store, [(f"{number}", 0) for number in range(500)], now=500.0).results
    first = int(np.flatnonzero(results == JOINED)[0])
    assert set(results[:first]) == {LATE}
    assert set(results[first:]) == {JOINED}
    # A sixteenth, or a little more, is forgotten at a time.
    assert store.bytes > 0.85 * 200_000


def test_a_request_that_is_larger_than_the_store_is_not_kept() -> None:
    store = OutcomeStore(10_000, 60.0)
    store.add(STORED, [prediction("huge", rows=1000), prediction("small")], 100.0)
    assert store.bytes <= 10_000


def test_memory_is_what_the_bound_says() -> None:
    """One-row requests, where the index weighs most."""
    process, bound = psutil.Process(), 24_000_000
    store = OutcomeStore(bound, 1e9)
    before = process.memory_info().rss
    for number in range(100):
        predictions = [prediction(f"request-{number}-{i}", rows=1) for i in range(1000)]
        store.add(STORED, predictions, 100.0)
    assert store.bytes <= bound
    # Besides the store: ids that are remembered for telling late outcomes, and garbage of the loop above.
    assert process.memory_info().rss - before < bound + 30_000_000


def test_of_a_request_sent_twice_the_latest_counts_and_no_outcome_counts_twice() -> None:
    store = OutcomeStore(ROOMY, 60.0)
    store.add(STORED, [prediction("a", value=10.0)], 100.0)
    assert look_up(store, [("a", 0)]).results.tolist() == [JOINED]
    store.add(STORED, [prediction("a", value=20.0)], 100.0)
    found = look_up(store, [("a", 0), ("a", 1)])
    assert found.results.tolist() == [DUPLICATE, JOINED]
    assert found.matched[0].outputs[metadata.QUANTILES][0, 0] == 21.0


def test_versions_are_kept_apart() -> None:
    store, second = OutcomeStore(ROOMY, 60.0), stored_of(version=2)
    store.add(STORED, [prediction("a")], 100.0)
    store.add(second, [prediction("b")], 100.0)
    found = look_up(store, [("a", 0), ("b", 0), ("b", 1)])
    assert {matched.stored.labels[1]: len(matched.places) for matched in found.matched} == {"1": 1, "2": 2}


def test_a_request_that_comes_again_after_it_was_forgotten_is_known_again() -> None:
    store = OutcomeStore(ROOMY, 60.0)
    store.add(STORED, [prediction("a", time=100.0)], 100.0)
    assert look_up(store, [("a", 0)], now=500.0).results.tolist() == [LATE]
    store.add(STORED, [prediction("a", time=500.0)], 500.0)
    assert look_up(store, [("a", 0)], now=501.0).results.tolist() == [JOINED]


def test_threads_that_tell_the_same_outcomes_join_each_once() -> None:
    store = OutcomeStore(50_000_000, 1e9)
    store.add(STORED, [prediction(f"{number}", rows=20) for number in range(500)], 100.0)
    outcomes = [(f"{number}", row) for number in range(500) for row in range(20)]
    joined: list[int] = []

    def record() -> None:
        for start in range(0, len(outcomes), 1000):
            joined.append(int((look_up(store, outcomes[start : start + 1000]).results == JOINED).sum()))

    recorders = [threading.Thread(target=record) for _ in range(4)]
    for teller in recorders:
        teller.start()
    for teller in recorders:
        teller.join()
    assert sum(joined) == len(outcomes)
