import time
from pathlib import Path

import numpy as np
import pytest

from ghostless.contract import metadata
from ghostless.contract.errors import InvalidRequestError
from ghostless.v1 import prediction_pb2 as pb
from learning import metrics as offline
from serving.engines.embedded import LoadedModel
from serving.outcomes.joining import OutcomeJoiner
from serving.outcomes.peers import LocalOutcomes
from serving.outcomes.service import OutcomeService
from serving.outcomes.store import OutcomeStore
from serving.telemetry.metrics import ServerMetrics
from tests.support.call_records import answered, failed, inputs_of, load_small
from tests.support.onnx_models import SMALL

LABELS = {"model": "demo", "version": "1", "head": "cr"}


class OutcomeHarness:
    """A store, a joiner and the service before them, with the metrics they write."""

    def __init__(self, root: Path, rate: float = 1.0) -> None:
        self.model: LoadedModel = load_small(root)
        self.metrics = ServerMetrics()
        outcomes = self.metrics.outcomes
        self.joiner = OutcomeJoiner(OutcomeStore(50_000_000, 3600.0), outcomes, rate)
        self.service = OutcomeService(LocalOutcomes(self.joiner, lambda: None), outcomes, self.joiner.is_stored)

    def predict(self, request_id: str, rows: int, seed: int = 0, ago_s: float = 0.0) -> dict[str, np.ndarray]:
        """The outputs that were answered with."""
        record = answered(self.model, rows, request_id, seed)
        self.joiner.take([record], time.time() - ago_s - record.answered)
        return dict(record.outputs)

    def record(self, ids: list[str], rows: list[int], actuals: list[float]) -> pb.RecordOutcomesResponse:
        return self.service.record(pb.RecordOutcomesRequest(request_ids=ids, rows=rows, actuals=actuals))

    def value(self, name: str, **labels: str) -> float:
        found = self.metrics.registry.get_sample_value(f"ghostless_{name}", labels)
        assert found is not None, name
        return found


@pytest.fixture
def harness(tmp_path: Path) -> OutcomeHarness:
    return OutcomeHarness(tmp_path)


def counts(response: pb.RecordOutcomesResponse) -> dict[str, int]:
    return {name: getattr(response, name) for name in ("joined", "late", "unknown", "duplicate", "invalid")}


def test_online_figures_are_the_offline_ones(harness: OutcomeHarness) -> None:
    random, parts, ids, rows = np.random.default_rng(1), [], [], []
    for seed in range(40):
        parts.append(harness.predict(f"r{seed}", 25, seed))
        ids += [f"r{seed}"] * 25
        rows += list(range(25))
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    y = random.uniform(-0.3, 3.3, 1000).astype(np.float32)
    order = random.permutation(1000)
    for chunk in np.array_split(order, 7):
        response = harness.record([ids[i] for i in chunk], [rows[i] for i in chunk], y[chunk].tolist())
        assert response.joined == len(chunk)

    clipped = np.clip(y, 0.0, 3.0)
    knots = np.asarray(harness.model.metadata.knots)
    cdf = np.maximum.accumulate(outputs[metadata.CDF].astype(np.float64), axis=1)
    covered = offline.coverage(outputs[metadata.QUANTILES], SMALL.levels, clipped)
    for level, share in covered.intervals.items():
        inside = harness.value("outcome_covered_rows_total", level=f"{level:g}", **LABELS)
        assert inside / harness.value("outcome_interval_rows_total", level=f"{level:g}", **LABELS) == pytest.approx(
            share, abs=1e-6
        )
    assert len(covered.intervals) == 2
    for level, share in covered.levels.items():
        assert harness.value("outcome_below_rows_total", level=f"{level:g}", **LABELS) / 1000 == pytest.approx(share)
    assert harness.value("outcome_crps_sum", **LABELS) / harness.value("outcome_crps_count", **LABELS) == pytest.approx(
        offline.crps(cdf, knots, clipped).mean(), abs=1e-6
    )
    edges = offline.uniform_edges(0.0, 3.0)
    masses = np.diff([[np.interp(edge, knots, row) for row in cdf] for edge in edges], axis=0).T
    nll = offline.discretised_nll(np.maximum(masses, 0), clipped, edges.astype(np.float32))
    assert harness.value("outcome_nll_sum", **LABELS) / 1000 == pytest.approx(nll, abs=1e-6)
    pit = offline.pit(cdf, knots, clipped)
    for bound in (0.05, 0.5, 0.95, 1.0):
        assert harness.value("pit_bucket", le=str(bound), **LABELS) == (pit <= bound).sum()


def test_joined_outcomes_are_paired(harness: OutcomeHarness) -> None:
    """Rows of one request with each other, rows of one item with those of other users."""
    outputs = [harness.predict(f"r{seed}", 25, seed) for seed in range(40)]
    for seed in range(40):
        assert harness.record([f"r{seed}"] * 25, list(range(25)), [1.0] * 25).joined == 25
    inputs = [inputs_of(25, seed) for seed in range(40)]
    residuals = [1.0 - part[metadata.MEAN].astype(np.float64) for part in outputs]
    products = [
        r[i] * r[i + 1]
        for r, columns in zip(residuals, inputs, strict=True)
        for i in range(24)
        if columns["item_id"][i] != columns["item_id"][i + 1]
    ]
    positive, negative = (
        harness.value("pair_products_total", shared="context", sign=sign, **LABELS) for sign in ("positive", "negative")
    )
    assert positive - negative == pytest.approx(sum(products))
    assert harness.value("pairs_total", shared="context", **LABELS) == len(products)
    # 1,000 rows of 250 items.
    assert harness.value("pairs_total", shared="candidate", **LABELS) > 600
    served = harness.value("pair_served_total", shared="candidate", **LABELS)
    largest = max(part[metadata.EPISTEMIC_CANDIDATE].max() for part in outputs)
    assert 0 < served / harness.value("pairs_total", shared="candidate", **LABELS) < largest


def test_ten_equal_buckets_of_a_model_with_ten_bins_are_its_bins(harness: OutcomeHarness) -> None:
    bins = harness.predict("a", 1)[metadata.BINS][0]
    harness.record(["a"], [0], [1.6])
    assert harness.value("outcome_nll_sum", **LABELS) == pytest.approx(-np.log(bins[5]), abs=1e-5)


def test_each_outcome_is_told_what_became_of_it(harness: OutcomeHarness) -> None:
    harness.predict("a", 3)
    harness.predict("old", 2, ago_s=4000.0)
    response = harness.record(
        ["a", "a", "nobody", "a", "old", "a", "a", "nobody"],
        [0, 1, 0, 0, 1, 3, 2, 0],
        [1.0, 2.0, 1.0, 1.5, 1.0, 1.0, float("nan"), float("-inf")],
    )
    assert counts(response) == {"joined": 2, "late": 1, "unknown": 1, "duplicate": 1, "invalid": 3}
    names = [pb.RecordOutcomesResponse.Result.Name(result) for result in response.results]
    assert names == ["JOINED", "JOINED", "UNKNOWN", "DUPLICATE", "LATE", "INVALID", "INVALID", "INVALID"]
    nobody = {"model": "", "version": "", "head": ""}
    assert harness.value("outcomes_total", result="joined", **LABELS) == 2
    assert harness.value("outcomes_total", result="late", **LABELS) == 1
    assert harness.value("outcomes_total", result="duplicate", **LABELS) == 1
    assert harness.value("outcomes_total", result="invalid", **LABELS) == 1
    assert harness.value("outcomes_total", result="invalid", **nobody) == 2
    assert harness.value("outcomes_total", result="unknown", **nobody) == 1
    # What was not joined left no trace in the scores, and a NaN did not use up its row.
    assert harness.value("outcome_crps_count", **LABELS) == 2
    assert harness.record(["a"], [2], [1.0]).joined == 1


def test_lag_and_what_is_stored_are_told(harness: OutcomeHarness) -> None:
    harness.predict("a", 3, ago_s=100.0)
    assert harness.value("outcome_predictions_stored") == 3
    harness.record(["a", "a"], [0, 1], [1.0, 1.0])
    assert harness.value("outcome_lag_seconds_sum", **LABELS) == pytest.approx(200.0, abs=20.0)


def test_only_answers_with_an_id_of_sane_length_and_a_distribution_are_kept(harness: OutcomeHarness) -> None:
    assert harness.joiner.needed_outputs(stored=True, sampled=False) == {
        metadata.CDF,
        metadata.QUANTILES,
        metadata.MEAN,
        metadata.EPISTEMIC,
        metadata.EPISTEMIC_CANDIDATE,
    }
    assert harness.joiner.needed_outputs(stored=False, sampled=True) == frozenset()
    few = answered(harness.model, request_id="few")
    few.outputs = {metadata.MEAN: few.outputs[metadata.MEAN]}
    records = [answered(harness.model), answered(harness.model, request_id="x" * 257), few, failed("NOT_FOUND")]
    harness.joiner.take(records, time.time() - 1000)
    assert harness.value("outcome_predictions_stored") == 0
    assert counts(harness.record(["few", ""], [0, 0], [1.0, 1.0]))["unknown"] == 2


def test_columns_of_unequal_length_are_refused(harness: OutcomeHarness) -> None:
    with pytest.raises(InvalidRequestError, match="equal length, got 2, 1 and 1"):
        harness.record(["a", "b"], [0], [1.0])


def test_nothing_told_is_nothing_joined(harness: OutcomeHarness) -> None:
    assert counts(harness.record([], [], [])) == dict.fromkeys(("joined", "late", "unknown", "duplicate", "invalid"), 0)


def test_predictions_of_a_share_of_requests_are_kept_and_outcomes_of_the_others_skipped(tmp_path: Path) -> None:
    harness = OutcomeHarness(tmp_path, rate=0.25)
    ids = [f"request {number}" for number in range(400)]
    response = harness.record([*ids, ""], [0] * 401, [1.0] * 401)
    # Five standard deviations of a fair draw on either side; of those that would be stored, nothing was predicted.
    assert 257 < response.skipped < 343
    assert response.unknown == 401 - response.skipped
    assert harness.value("outcomes_total", result="skipped", model="", version="", head="") == response.skipped
    stored = [each for each, result in zip(ids, response.results, strict=False) if result == response.UNKNOWN]
    assert all(map(harness.joiner.is_stored, stored))
    assert sum(map(harness.joiner.is_stored, ids)) == len(stored)
