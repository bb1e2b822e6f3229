"""The pair test in service, against a world whose shared errors are known and against pairs formed one by one."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ghostless.contract import metadata
from ghostless.contract.metadata import FeatureSpec
from serving.engines.interface import ModelVersion
from serving.outcomes import pairs
from serving.outcomes.pairs import JoinedRows, PairTest, row_keys
from serving.outcomes.stored_distribution import CONTEXT_KEY, ITEM_KEY, StoredDistribution, distribution_to_store
from serving.telemetry.metrics import ServerMetrics
from tests.support.onnx_models import CR_OUTPUTS, SMALL, metadata_of

LABELS = {"model": "demo", "version": "1", "head": "cr"}
USER, ITEM, NOISE = 0.03, 0.02, 0.2


def stored_of(
    outputs: tuple[str, ...] = CR_OUTPUTS, features: tuple[FeatureSpec, ...] = SMALL.features
) -> StoredDistribution:
    found = distribution_to_store(ModelVersion("demo", 1, metadata_of(replace(SMALL, features=features)), outputs, {}))
    assert found is not None
    return found


class Harness:
    def __init__(self, stored: StoredDistribution | None = None) -> None:
        metrics = ServerMetrics()
        self.registry = metrics.registry
        self.test = PairTest(stored or stored_of(), metrics.outcomes.pairs)

    def value(self, name: str, shared: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"ghostless_{name}", {**LABELS, "shared": shared, **labels}) or 0.0

    def measured(self, shared: str) -> float:
        positive, negative = (self.value("pair_products_total", shared, sign=sign) for sign in ("positive", "negative"))
        return (positive - negative) / self.value("pairs_total", shared)

    def error(self, shared: str) -> float:
        return float(np.sqrt(self.value("pair_squares_total", shared)) / self.value("pairs_total", shared))

    def served(self, shared: str) -> float:
        return self.value("pair_served_total", shared) / self.value("pairs_total", shared)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def joined(
    requests: np.ndarray, items: np.ndarray, contexts: np.ndarray, residuals: np.ndarray, whole: float, own: float
) -> JoinedRows:
    outputs = {
        metadata.EPISTEMIC: np.full((len(items), 1), whole, np.float32),
        metadata.EPISTEMIC_CANDIDATE: np.full((len(items), 1), own, np.float32),
        ITEM_KEY: items.astype(np.uint32)[:, None],
        CONTEXT_KEY: contexts.astype(np.uint32)[:, None],
    }
    return JoinedRows(requests, outputs, residuals)


def world(requests: int, rows: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Requests of 500 users with `rows` of 300 items each: their numbers, items, users and errors."""
    random = np.random.default_rng(seed)
    users, items = random.normal(0, USER**0.5, 500), random.normal(0, ITEM**0.5, 300)
    for number in range(requests):
        user, shown = int(random.integers(500)), random.choice(300, rows, replace=False)
        errors = users[user] + items[shown] + random.normal(0, NOISE**0.5, rows)
        yield np.full(rows, number), shown, np.full(rows, user), errors


def test_what_is_measured_is_the_variance_of_the_shared_error(harness: Harness) -> None:
    for numbers, shown, user, errors in world(4000, 10):
        harness.test.add(joined(numbers, shown, user, errors, whole=USER + ITEM, own=ITEM))
    for shared, truth in (("context", USER), ("candidate", ITEM)):
        assert harness.measured(shared) == pytest.approx(truth, abs=4 * harness.error(shared)), shared
        assert harness.error(shared) < truth / 8
        assert harness.served(shared) == pytest.approx(truth, rel=1e-5)
    assert harness.value("pairs_total", "context") == 4000 * 9
    # All but each item's first, and those few where the same user saw the item twice in a row.
    assert 0.98 * 40_000 < harness.value("pairs_total", "candidate") <= 40_000 - 300


def test_pairs_are_those_formed_one_by_one(harness: Harness) -> None:
    """In calls of any size: outcomes of a request may come in several."""
    parts = [np.concatenate(column) for column in zip(*world(200, 7), strict=True)]
    expected = {"context": [0.0, 0.0, 0.0], "candidate": [0.0, 0.0, 0.0]}
    last: dict[tuple[str, int], tuple[float, int]] = {}
    for number, item, user, error in zip(*(part.tolist() for part in parts), strict=True):
        for shared, key, other in (("context", number, item), ("candidate", item, user)):
            before = last.get((shared, key))
            if before is not None and before[1] != other:
                product = before[0] * error
                for place, value in enumerate((1.0, product, product**2)):
                    expected[shared][place] += value
            last[shared, key] = (error, other)
    cuts = np.sort(np.random.default_rng(1).integers(0, 1400, 30)).tolist()
    for start, end in itertools.pairwise([0, *cuts, 1400]):
        numbers, shown, users, errors = (part[start:end] for part in parts)
        harness.test.add(joined(numbers, shown, users, errors, whole=1.0, own=0.5))
    for shared, (count, product, squares) in expected.items():
        assert harness.value("pairs_total", shared) == count
        assert harness.measured(shared) * count == pytest.approx(product)
        assert harness.value("pair_squares_total", shared) == pytest.approx(squares)


def test_rows_that_share_more_are_left_out(harness: Harness) -> None:
    one = np.array([1, 1])
    harness.test.add(joined(np.array([1, 2]), one, one, np.ones(2), 1.0, 0.5))
    assert harness.value("pairs_total", "candidate") == 0, "one user saw the item twice"
    harness.test.add(joined(np.array([3, 3]), one, one, np.ones(2), 1.0, 0.5))
    assert harness.value("pairs_total", "context") == 0, "the request has the item twice"


def test_without_context_ids_every_request_is_a_context_of_its_own() -> None:
    features = tuple(feature for feature in SMALL.features if feature.name != "user_id")
    harness = Harness(stored_of(features=features))
    same = np.ones(2)
    harness.test.add(joined(np.array([1, 2]), same, same, np.ones(2), 1.0, 0.5))
    assert harness.value("pairs_total", "candidate") == 1


def test_memory_is_bounded_and_what_was_forgotten_makes_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_SLOTS", 16)
    small = Harness()
    many = np.arange(1000)
    for _ in range(2):
        small.test.add(joined(many, many, many, np.ones(1000), 1.0, 0.5))
    # Of 1000 items in 16 slots the last 16 are remembered; their next outcome is of the same user, so none is paired.
    assert small.value("pairs_total", "candidate") == 0
    small.test.add(joined(many + 5000, many, many + 1, np.ones(1000), 1.0, 0.5))
    assert small.value("pairs_total", "candidate") == 16


def test_keys_tell_candidates_and_contexts_apart() -> None:
    inputs = {
        "user_id": np.array([7, 7, 8]),
        "hour": np.array([1.0, 2.0, 1.0], np.float32),
        "item_id": np.array([1, 2, 1]),
        "duration": np.array([1.0, 1.0, 2.0], np.float32),
    }
    keys = row_keys(stored_of(), [{name: values[:2] for name, values in inputs.items()}, inputs])
    assert keys[ITEM_KEY].dtype == np.uint32
    items, contexts = keys[ITEM_KEY].tolist(), keys[CONTEXT_KEY].tolist()
    assert items == [items[0], items[1], items[0], items[1], items[0]]
    assert contexts == [contexts[0]] * 4 + [contexts[4]]
    assert len({*items, *contexts}) == 4


def test_a_model_without_a_split_stores_no_more_than_its_distribution() -> None:
    few = stored_of((metadata.MEAN, metadata.CDF, metadata.QUANTILES))
    assert few.outputs.keys() == {metadata.CDF, metadata.QUANTILES}
    assert not few.candidate_variance
    before = stored_of(tuple(name for name in CR_OUTPUTS if name != metadata.EPISTEMIC_CANDIDATE))
    assert before.candidate_variance == metadata.EPISTEMIC
