"""Every kind of wrong answer is found, and a right one is not blamed."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from ghostless.v1 import prediction_pb2 as pb
from loadtest.generator.checks import AnswerChecker
from loadtest.generator.exchange import Exchange
from loadtest.generator.plan import Checks
from tests.support.running import predict_request
from tests.support.scripted_server import answer

OUTPUTS = ("mean", "quantiles", "bins", "uncertainty")
ROWS = 7
ID = b"00-000000001"


def _response(**fields: Any) -> pb.PredictResponse:
    return answer(predict_request(ROWS, request_id=ID.decode(), **fields))


def _checked(checker: AnswerChecker, message: bytes, pieces: int = 1) -> tuple[int, str]:
    exchange = Exchange(0.0, 0, ID)
    body = struct.pack(">BI", 0, len(message)) + message
    step = -(-len(body) // pieces)
    exchange.body = [body[start : start + step] for start in range(0, len(body), step)]
    return checker.check(exchange, ROWS)


@pytest.mark.parametrize("pieces", [1, 3])
def test_right_answers_pass_and_only_a_share_is_parsed(pieces: int) -> None:
    checker = AnswerChecker(Checks(sampled_share=0.1), OUTPUTS, 0, seed=1)
    # The server's own layout, with the id at the end.
    response = _response()
    response.request_id = ""
    message = response.SerializeToString() + pb.PredictResponse(request_id=ID.decode()).SerializeToString()
    assert {_checked(checker, message, pieces) for _ in range(500)} == {(3, "")}
    assert 20 < checker.checked < 100


def _nan(response: pb.PredictResponse) -> None:
    response.quantiles.values[5] = float("nan")


def _short(response: pb.PredictResponse) -> None:
    del response.mean[-1]


def _rows(response: pb.PredictResponse) -> None:
    response.CopyFrom(answer(predict_request(ROWS + 1, request_id=ID.decode())))


def _id(response: pb.PredictResponse) -> None:
    response.request_id = "00-000000002"


def _version(response: pb.PredictResponse) -> None:
    response.version = 4


def _lacking(response: pb.PredictResponse) -> None:
    response.ClearField("bins")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (_nan, "non-finite numbers"),
        (_short, "malformed"),
        (_rows, "wrong number of rows"),
        (_id, "request id not echoed"),
        (_version, "unexpected version"),
        (_lacking, "lacks bins"),
    ],
)
def test_what_is_wrong_is_said(spoil: Callable[[pb.PredictResponse], None], expected: str) -> None:
    checker = AnswerChecker(Checks(sampled_share=1.0), OUTPUTS, version=3, seed=0)
    response = _response()
    assert _checked(checker, response.SerializeToString())[1] == ""
    spoil(response)
    assert _checked(checker, response.SerializeToString())[1] == expected


def test_wrong_ids_sizes_and_versions_are_found_even_where_nothing_is_sampled() -> None:
    checker = AnswerChecker(Checks(sampled_share=0.0), OUTPUTS, version=3, seed=0)
    assert _checked(checker, _response().SerializeToString())[1] == ""
    for spoil in (_id, _short, _rows, _version, _lacking):
        response = _response()
        spoil(response)
        assert _checked(checker, response.SerializeToString())[1], spoil.__name__
    whole = _response().SerializeToString()
    exchange = Exchange(0.0, 0, ID)
    exchange.body = [struct.pack(">BI", 0, len(whole)) + whole[:-4]]
    assert checker.check(exchange, ROWS) == (0, "incomplete message")
