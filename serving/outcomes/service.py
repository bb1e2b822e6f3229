"""RecordOutcomes: checks actual values reported by clients and joins them with their predictions."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ghostless.contract.errors import InvalidRequestError
from ghostless.v1 import prediction_pb2 as pb
from serving.outcomes.joining import Actuals, Results, result_name
from serving.outcomes.peers import read_outcomes
from serving.outcomes.store import OutcomeResult, Places
from serving.telemetry.metrics import OutcomeMetrics

_NO_MODEL = ("", "", "")


class Joining(Protocol):
    """LocalOutcomes or SharedOutcomes."""

    def join(self, ids: list[str], rows: Places, actuals: Actuals) -> Results: ...


class OutcomeService:
    def __init__(self, outcomes: Joining, metrics: OutcomeMetrics, is_stored: Callable[[str], bool] = bool) -> None:
        """`is_stored` tells for a request_id whether its prediction is stored."""
        self._outcomes = outcomes
        self._metrics = metrics
        self._is_stored = is_stored

    def record(self, request: pb.RecordOutcomesRequest) -> pb.RecordOutcomesResponse:
        ids, rows, actuals = read_outcomes(request)
        if not len(ids) == len(rows) == len(actuals):
            raise InvalidRequestError(
                f"request_ids, rows and actuals must be of equal length, got {len(ids)}, {len(rows)} and {len(actuals)}"
            )
        results = np.full(len(ids), OutcomeResult.INVALID, np.uint8)
        finite = np.isfinite(actuals)
        skipped = np.array([bool(text) and not self._is_stored(text) for text in ids], dtype=np.bool_) & finite
        results[skipped] = OutcomeResult.SKIPPED
        usable = np.flatnonzero(finite & ~skipped)
        results[usable] = self._outcomes.join([ids[place] for place in usable.tolist()], rows[usable], actuals[usable])
        # The others were counted by the worker that has their prediction.
        self._count(OutcomeResult.INVALID, int(np.count_nonzero(~finite)))
        self._count(OutcomeResult.SKIPPED, int(np.count_nonzero(skipped)))
        self._count(OutcomeResult.UNKNOWN, int(np.count_nonzero(results == OutcomeResult.UNKNOWN)))
        counts = np.bincount(results, minlength=len(OutcomeResult.Result.values()))
        response = pb.RecordOutcomesResponse(results=results.tolist())  # type: ignore[arg-type]  # enum values are ints
        for result in OutcomeResult.Result.values()[1:]:
            setattr(response, result_name(result), int(counts[result]))
        return response

    def _count(self, result: int, count: int) -> None:
        if count:
            self._metrics.outcomes.labels(result_name(result), *_NO_MODEL).inc(count)
