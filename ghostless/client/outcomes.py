"""Outcomes: the observed targets of predicted candidates, which are reported to the server later."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from ghostless.client.errors import MalformedAnswerError
from ghostless.contract.errors import InvalidRequestError
from ghostless.contract.wire import packed_floats
from ghostless.v1 import prediction_pb2 as pb

# [n] strings, or one string for all rows.
RequestIds = str | Sequence[str] | npt.NDArray[Any]

RESULTS = tuple(name.lower() for name, number in pb.RecordOutcomesResponse.Result.items() if number)


@dataclass(frozen=True, eq=False)
class OutcomeReport:
    """Number of outcomes that were joined with their predictions, and why the others were not."""

    joined: int
    late: int
    """The prediction is no longer stored."""
    unknown: int
    """No such request_id on this server."""
    duplicate: int
    """The outcome of this candidate was reported before; the first report counts."""
    invalid: int
    """Not finite, or the request had fewer candidates."""
    skipped: int
    """The request is not in the share whose predictions the server stores."""
    results: npt.NDArray[np.str_]
    """[n], the name of one of the counts above for each outcome."""


def outcomes_request(request_ids: RequestIds, rows: npt.ArrayLike, actuals: npt.ArrayLike) -> pb.RecordOutcomesRequest:
    """The message for n outcomes, given as columns [n]. Raises InvalidRequestError if a value can't be sent."""
    places, values = np.atleast_1d(np.asarray(rows)), np.atleast_1d(np.asarray(actuals))
    ids = [request_ids] * len(places) if isinstance(request_ids, str) else list(request_ids)
    if places.ndim != 1 or values.shape != places.shape or len(ids) != len(places):
        raise InvalidRequestError(
            "request_ids, rows and actuals must be of equal length, shape [n]; "
            f"got {len(ids)}, {list(places.shape)} and {list(values.shape)}"
        )
    if places.size and places.dtype.kind not in "iu":
        raise InvalidRequestError(f"rows are {places.dtype}; expected the candidates' indexes, integers from 0")
    try:
        request = pb.RecordOutcomesRequest(request_ids=ids, rows=places.tolist())
        with np.errstate(over="ignore"):  # values beyond float32 become infinite, which the server counts as invalid
            floats = values.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"an outcome can't be sent: {error}") from error
    request.MergeFromString(packed_floats(pb.RecordOutcomesRequest.ACTUALS_FIELD_NUMBER, floats))
    return request


def parse_report(answer: bytes) -> OutcomeReport:
    try:
        message = pb.RecordOutcomesResponse.FromString(answer)
    except DecodeError as error:
        raise MalformedAnswerError(f"the response is not a ghostless.v1.RecordOutcomesResponse: {error}") from error
    words = np.array(["", *RESULTS])
    return OutcomeReport(
        joined=message.joined,
        late=message.late,
        unknown=message.unknown,
        duplicate=message.duplicate,
        invalid=message.invalid,
        skipped=message.skipped,
        results=words[np.array(message.results[:], np.int64)],
    )
