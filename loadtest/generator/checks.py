"""Checks responses while the load runs: a cheap check of all, a full check of a sample."""

import random

import numpy as np

from ghostless.client.errors import MalformedAnswerError
from ghostless.client.prediction import Prediction, parse_prediction
from ghostless.contract.http2_frames import MESSAGE_PREFIX
from ghostless.v1 import prediction_pb2 as pb
from loadtest.generator.exchange import Exchange
from loadtest.generator.plan import Checks
from loadtest.generator.request_frames import REQUEST_ID_BYTES

_PREFIX = MESSAGE_PREFIX.size
# A field that must be present for each requested output. Outputs such as `uncertainty` have further fields that some
# methods lack.
_FIELDS = {
    "mean": "mean",
    "quantiles": "quantiles",
    "bins": "bins",
    "uncertainty": "aleatoric",
    "categorical_uncertainty": "categorical_aleatoric",
    "density": "density",
    "emg_density": "emg_density",
}
# Number of bytes at the end of a response that are searched for the request id.
_TAIL = 4 * REQUEST_ID_BYTES


class AnswerChecker:
    """Checks responses, and remembers what correct ones look like.

    If a response has the same size and the same beginning (model, version, rows) as one that passed the full check for
    the same number of rows, only its request id is checked, which the server writes at the end. All others are parsed
    in full.
    """

    def __init__(self, checks: Checks, outputs: tuple[str, ...], version: int, seed: int) -> None:
        self._checks = checks
        self._outputs = outputs
        self._version = version
        self._random = random.Random(seed)
        self._known: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.checked = 0

    def check(self, exchange: Exchange, rows: int) -> tuple[int, str]:
        """The version that answered, 0 if it was not checked; and what is wrong, an empty string if nothing is."""
        parts, request_id = exchange.body, exchange.request_id
        size = sum(map(len, parts)) - _PREFIX
        if size < 0 or len(parts[0]) < _PREFIX or int.from_bytes(parts[0][1:_PREFIX]) != size:
            return 0, "incomplete message"
        if not self._checks.contents:
            return 0, ""
        known = self._known.get((rows, size))
        if (
            known
            and parts[0].startswith(known[0], _PREFIX)
            and request_id in parts[-1][-_TAIL:]
            and self._random.random() >= self._checks.sampled_share
        ):
            return known[1], ""
        return self._check_in_full(b"".join(parts)[_PREFIX:], rows, request_id)

    def _check_in_full(self, message: bytes, rows: int, request_id: bytes) -> tuple[int, str]:
        self.checked += 1
        try:
            answer = parse_prediction(message)
        except MalformedAnswerError:
            return 0, "malformed"
        wrong = self._wrong(answer, rows, request_id)
        if not wrong:
            beginning = pb.PredictResponse(model=answer.model, version=answer.version, rows=rows).SerializeToString()
            if message.startswith(beginning):
                self._known[rows, len(message)] = beginning, answer.version
        return answer.version, wrong

    def _wrong(self, answer: Prediction, rows: int, request_id: bytes) -> str:
        if answer.request_id.encode() != request_id:
            return "request id not echoed"
        if answer.rows != rows:
            return "wrong number of rows"
        if self._version and answer.version != self._version:
            return "unexpected version"
        missing = [output for output in self._outputs if getattr(answer, _FIELDS[output]) is None]
        if missing:
            return f"lacks {', '.join(missing)}"
        # The parser has checked that every array has `rows` rows.
        arrays = [value for value in vars(answer).values() if isinstance(value, np.ndarray)]
        if not all(np.isfinite(array).all() for array in arrays):
            return "non-finite numbers"
        return ""
