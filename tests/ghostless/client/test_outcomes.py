import numpy as np
import numpy.typing as npt
import pytest

from ghostless.client import MalformedAnswerError
from ghostless.client.outcomes import outcomes_request, parse_report
from ghostless.contract.errors import InvalidRequestError
from ghostless.v1 import prediction_pb2 as pb


def test_columns_become_the_message_that_generated_code_reads() -> None:
    actuals = np.array([0.5, np.nan, 2.5])
    request = outcomes_request(np.array(["a", "b", "a"]), np.array([0, 300, 2]), actuals)
    read = pb.RecordOutcomesRequest.FromString(request.SerializeToString())
    assert (list(read.request_ids), list(read.rows)) == (["a", "b", "a"], [0, 300, 2])
    assert list(read.actuals) == pytest.approx(actuals.tolist(), nan_ok=True)


def test_one_id_stands_for_all_rows_and_one_outcome_needs_no_list() -> None:
    assert list(outcomes_request("a", [0, 1, 2], [1.0, 2.0, 3.0]).request_ids) == ["a"] * 3
    single = outcomes_request("a", 4, 1.5)
    assert (list(single.request_ids), list(single.rows), list(single.actuals)) == (["a"], [4], [1.5])


def test_a_number_too_large_for_float32_is_left_to_the_server_to_count_as_invalid() -> None:
    assert np.isinf(outcomes_request("a", 0, 1e300).actuals[0])


@pytest.mark.parametrize(
    ("ids", "rows", "actuals", "message"),
    [
        (["a"], [0, 1], [1.0, 1.0], "equal length, shape .n.; got 1, .2. and .2."),
        ("a", [0, 1], [1.0], "got 2, .2. and .1."),
        ("a", [[0]], [[1.0]], "equal length"),
        ("a", [0.5], [1.0], "rows are float64; expected the candidates' indexes"),
        ("a", [-1], [1.0], "can't be sent"),
        ([7], [0], [1.0], "can't be sent"),
        ("a", [0], ["much"], "can't be sent"),
    ],
)
def test_what_can_not_be_sent_is_said_before_it_is(
    ids: str | list[str], rows: npt.ArrayLike, actuals: npt.ArrayLike, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        outcomes_request(ids, rows, actuals)


def test_the_report_has_a_word_for_each_outcome() -> None:
    result = pb.RecordOutcomesResponse
    answer = result(results=[result.JOINED, result.LATE, result.JOINED], joined=2, late=1)
    report = parse_report(answer.SerializeToString())
    assert (report.joined, report.late, report.unknown, report.duplicate, report.invalid) == (2, 1, 0, 0, 0)
    assert report.results.tolist() == ["joined", "late", "joined"]


def test_an_answer_that_is_none_is_told() -> None:
    with pytest.raises(MalformedAnswerError, match=r"not a ghostless\.v1\.RecordOutcomesResponse"):
        parse_report(b"\xff\xff")
