import numpy as np
import pytest
from scipy import stats

from ghostless.contract import metadata
from ghostless.contract.arrays import Tensors
from ghostless.contract.errors import InvalidRequestError
from ghostless.contract.metadata import FeatureSpec
from ghostless.v1 import prediction_pb2 as pb
from serving.dataplane.model_plan import plan_of
from serving.dataplane.scoring import DEFAULT_SCALE, Rule, parse_rule, rank, score_rows
from serving.engines.interface import ModelVersion
from tests.support.onnx_models import CR_OUTPUTS, SMALL, Recipe, metadata_of

KNOTS = np.array([0.0, 1.0], np.float32)
CANDIDATES: Tensors = {"item_id": np.arange(40), "duration": np.zeros(40, np.float32)}
SEEDS = 10_000


def rule_of(
    scoring: pb.Scoring, recipe: Recipe = SMALL, inputs: Tensors = CANDIDATES, outputs: tuple[str, ...] = CR_OUTPUTS
) -> Rule:
    model = ModelVersion("demo", 1, metadata_of(recipe), outputs, {})
    rule = parse_rule(pb.PredictRequest(scoring=scoring), plan_of(model), inputs)
    assert rule is not None
    return rule


def thompson(seed: int, scale: float | None = None) -> pb.Scoring:
    return pb.Scoring(thompson=pb.Scoring.Thompson(seed=seed, scale=scale))


def some_answers() -> Tensors:
    """Rows whose means lie about as far apart as they are uncertain; every fifth is of an unknown item."""
    random = np.random.default_rng(2)
    variance = np.where(np.arange(40) % 5 == 0, 0.04, random.uniform(0.002, 0.01, 40))
    return {
        metadata.MEAN: random.normal(0.8, 0.1, 40).astype(np.float32),
        metadata.EPISTEMIC_CANDIDATE: variance.astype(np.float32),
        metadata.EPISTEMIC: (variance + 0.5).astype(np.float32),
        metadata.ALEATORIC: np.full(40, 100.0, np.float32),
    }


def test_a_parameter_that_overflows_is_the_clients_mistake_not_an_infinite_score() -> None:
    outputs = {"epistemic": np.ones(2, np.float32), "aleatoric": np.full(2, 100, np.float32)}
    with pytest.raises(InvalidRequestError, match="acquisition scoring overflows"):
        score_rows(rule_of(pb.Scoring(acquisition=pb.Scoring.Acquisition(gamma=3e38))), outputs, KNOTS)
    with pytest.raises(InvalidRequestError, match="thompson scoring overflows"):
        score_rows(rule_of(thompson(1, 3e38)), {**some_answers(), "mean": np.full(40, 3e38, np.float32)}, KNOTS)


def test_a_scale_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"thompson\.scale must be finite"):
        rule_of(thompson(1, float("nan")))


def test_a_variance_just_below_zero_is_zero() -> None:
    outputs = {"mean": np.ones(1, np.float32), "epistemic_candidate": np.array([-1e-9], np.float32)}
    assert score_rows(rule_of(pb.Scoring(ucb=pb.Scoring.Ucb(kappa=1.0))), outputs, KNOTS).tolist() == [1.0]


def test_acquisition_takes_the_whole_epistemic_part() -> None:
    answers = some_answers()
    scores = score_rows(rule_of(pb.Scoring(acquisition=pb.Scoring.Acquisition(gamma=0.3))), answers, KNOTS)
    np.testing.assert_allclose(scores, answers[metadata.EPISTEMIC] + 0.3 * answers[metadata.ALEATORIC], rtol=1e-6)


def test_equal_scores_keep_the_requests_order() -> None:
    assert rank(np.array([1.0, 3.0, 3.0, 2.0, 3.0]), 4).tolist() == [1, 2, 4, 3]
    assert rank(np.array([1.0, 2.0]), 0).tolist() == [1, 0]


def test_no_scoring_is_asked_for() -> None:
    model = ModelVersion("demo", 1, metadata_of(SMALL), CR_OUTPUTS, {})
    assert parse_rule(pb.PredictRequest(), plan_of(model), CANDIDATES) is None


@pytest.mark.parametrize("scale", [None, 1.0])
def test_first_places_over_many_seeds_follow_the_rule(scale: float | None) -> None:
    answers = some_answers()
    firsts = np.bincount(
        [int(score_rows(rule_of(thompson(seed, scale)), answers, KNOTS).argmax()) for seed in range(SEEDS)],
        minlength=40,
    )
    random = np.random.default_rng(3)
    size = DEFAULT_SCALE if scale is None else scale
    deviation = size * np.sqrt(answers[metadata.EPISTEMIC_CANDIDATE].astype(np.float64))
    drawn = answers[metadata.MEAN] + deviation * random.standard_normal((20 * SEEDS, 40))
    sampled = np.bincount(drawn.argmax(axis=1), minlength=40)
    both = np.stack([firsts, sampled])
    often = np.outer(both.sum(axis=1), both.sum(axis=0)) / both.sum() >= 5
    kept = often.all(axis=0)
    cells = np.column_stack([both[:, kept], both[:, ~kept].sum(axis=1)])
    cells = cells[:, cells.sum(axis=0) > 0]
    assert cells.shape[1] > 3
    assert stats.chi2_contingency(cells).pvalue > 0.001
    # It explores, and new items are what it explores.
    greedy = int(answers[metadata.MEAN].argmax())
    assert firsts[greedy] < 0.95 * SEEDS
    assert firsts[::5].sum() > (greedy % 5 == 0) * SEEDS


def test_a_draw_is_the_items_own_whatever_the_request() -> None:
    answers = some_answers()
    scores = score_rows(rule_of(thompson(5)), answers, KNOTS)
    some = np.array([3, 30, 7, 3])
    inputs = {name: values[some] for name, values in CANDIDATES.items()}
    part = score_rows(rule_of(thompson(5), inputs=inputs), {name: v[some] for name, v in answers.items()}, KNOTS)
    np.testing.assert_array_equal(part, scores[some])
    # Nothing but the ids counts, and no row is drawn independently of its id.
    longer = {**CANDIDATES, "duration": np.full(40, 9.0, np.float32)}
    np.testing.assert_array_equal(score_rows(rule_of(thompson(5), inputs=longer), answers, KNOTS), scores)


def test_items_without_ids_are_told_apart_by_their_numbers() -> None:
    features = (FeatureSpec("user_id", "int64", "context", vocabulary=5), FeatureSpec("price", "float32", "candidate"))
    prices = {"price": np.array([1.0, 2.0, 1.0], np.float32)}
    answers = {"mean": np.zeros(3, np.float32), "epistemic_candidate": np.ones(3, np.float32)}
    scores = score_rows(rule_of(thompson(5), Recipe(features=features), prices), answers, KNOTS)
    assert scores[0] == scores[2] != scores[1]


def test_a_model_without_the_candidates_part_is_explored_by_the_whole() -> None:
    answers = some_answers()
    older = tuple(name for name in CR_OUTPUTS if name != metadata.EPISTEMIC_CANDIDATE)
    rule = rule_of(pb.Scoring(ucb=pb.Scoring.Ucb(kappa=1.0)), outputs=older)
    assert rule.needs == (metadata.MEAN, metadata.EPISTEMIC)
    expected = answers[metadata.MEAN] + np.sqrt(answers[metadata.EPISTEMIC])
    np.testing.assert_allclose(score_rows(rule, answers, KNOTS), expected, rtol=1e-6)
