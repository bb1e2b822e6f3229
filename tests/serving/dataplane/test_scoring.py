import numpy as np
import pytest

from ghostless.contract.errors import InvalidRequestError
from ghostless.v1 import prediction_pb2 as pb
from serving.dataplane.scoring import parse_rule, rank, score_rows

KNOTS = np.array([0.0, 1.0], np.float32)


def test_a_parameter_that_overflows_is_the_clients_mistake_not_an_infinite_score() -> None:
    request = pb.PredictRequest(scoring=pb.Scoring(acquisition=pb.Scoring.Acquisition(gamma=3e38)))
    rule = parse_rule(request)
    assert rule is not None
    outputs = {"epistemic": np.ones(2, np.float32), "aleatoric": np.full(2, 100, np.float32)}
    with pytest.raises(InvalidRequestError, match="acquisition scoring overflows"):
        score_rows(rule, outputs, KNOTS)


def test_a_variance_just_below_zero_is_zero() -> None:
    rule = parse_rule(pb.PredictRequest(scoring=pb.Scoring(ucb=pb.Scoring.Ucb(kappa=1.0))))
    assert rule is not None
    outputs = {"mean": np.ones(1, np.float32), "epistemic": np.array([-1e-9], np.float32)}
    assert score_rows(rule, outputs, KNOTS).tolist() == [1.0]


def test_equal_scores_keep_the_requests_order() -> None:
    assert rank(np.array([1.0, 3.0, 3.0, 2.0, 3.0]), 4).tolist() == [1, 2, 4, 3]
    assert rank(np.array([1.0, 2.0]), 0).tolist() == [1, 0]


def test_no_scoring_is_asked_for() -> None:
    assert parse_rule(pb.PredictRequest()) is None
