"""RecordOutcomes: actual values told by clients, checked and joined with what was predicted."""

from typing import Protocol

import numpy as np
from ghostless.v1 import prediction_pb2 as pb

from serving.errors import InvalidRequestError
from serving.observability.metrics import OutcomeMetrics
from serving.observability.outcome_siblings import read_outcomes
from serving.observability.outcome_store import Places, Result
from serving.observability.outcomes import Actuals, Results, result_name

_NO_MODEL = ("", "", "")


class Joining(Protocol):
    """LocalOutcomes or SharedOutcomes."""

    def join(self, ids: list[str], rows: Places, actuals: Actuals) -> Results: ...


class OutcomeService:
    def __init__(self, outcomes: Joining, metrics: OutcomeMetrics) -> None:
        self._outcomes = outcomes
        self._metrics = metrics

    def record(self, request: pb.RecordOutcomesRequest) -> pb.RecordOutcomesResponse:
        ids, rows, actuals = read_outcomes(request)
        if not len(ids) == len(rows) == len(actuals):
            raise InvalidRequestError(
                f"request_ids, rows and actuals must be of equal length, got {len(ids)}, {len(rows)} and {len(actuals)}"
            )
        results = np.full(len(ids), Result.INVALID, np.uint8)
        usable = np.flatnonzero(np.isfinite(actuals))
        results[usable] = self._outcomes.join([ids[place] for place in usable.tolist()], rows[usable], actuals[usable])
        # The others were counted where their prediction is.
        self._count(Result.INVALID, len(ids) - len(usable))
        self._count(Result.UNKNOWN, int(np.count_nonzero(results == Result.UNKNOWN)))
        counts = np.bincount(results, minlength=len(Result.Result.values()))
        response = pb.RecordOutcomesResponse(results=results.tolist())  # type: ignore[arg-type]  # enum values are ints
        for result in Result.Result.values()[1:]:
            setattr(response, result_name(result), int(counts[result]))
        return response

    def _count(self, result: int, count: int) -> None:
        if count:
            self._metrics.outcomes.labels(result_name(result), *_NO_MODEL).inc(count)
