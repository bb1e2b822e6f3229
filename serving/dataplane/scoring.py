"""Scores for ranking candidates, from the outputs of the graph; higher is better."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.distribution import Knots, quantile
from ghostless.contract.errors import InvalidRequestError
from ghostless.contract.item_draws import standard_normal
from ghostless.v1 import prediction_pb2 as pb
from serving.dataplane.model_plan import ModelPlan

# A scale of 1 explores too much with many candidates: the largest of many random errors takes the first place.
DEFAULT_SCALE = 0.25


@dataclass(frozen=True, slots=True)
class Rule:
    """A scoring rule with its parameter, and the graph's outputs that it needs."""

    name: str
    needs: tuple[str, ...]
    score: Callable[[Tensors, Knots], Array]


def parse_rule(request: pb.PredictRequest, plan: ModelPlan, inputs: Tensors) -> Rule | None:
    """The requested rule for candidates with these features. With only top_k it is the mean; None means no scoring."""
    if not request.HasField("scoring"):
        return _mean() if request.top_k else None
    scoring = request.scoring
    kind = scoring.WhichOneof("rule")
    match kind:
        case "mean":
            return _mean()
        case "quantile":
            return _quantile(scoring.quantile.level, plan.least_mass)
        case "ucb":
            return _ucb(_finite("ucb.kappa", scoring.ucb.kappa), plan.candidate_variance)
        case "thompson":
            asked = scoring.thompson
            scale = _finite("thompson.scale", asked.scale) if asked.HasField("scale") else DEFAULT_SCALE
            return _thompson(asked.seed, scale, plan.candidate_variance, [inputs[name] for name in plan.item_columns])
        case "acquisition":
            return acquisition_rule(_finite("acquisition.gamma", scoring.acquisition.gamma))
        case "risk_averse":
            return _risk_averse(_finite("risk_averse.weight", scoring.risk_averse.weight))
    raise InvalidRequestError("scoring has no rule; set one of mean, quantile, ucb, thompson, acquisition, risk_averse")


def score_rows(rule: Rule, outputs: Tensors, knots: Knots) -> Array:
    """The scores [n], float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores: Array = rule.score(outputs, knots).astype(np.float32)
    if not np.isfinite(scores).all():
        raise InvalidRequestError(f"{rule.name} scoring overflows with the parameter given; use a smaller one")
    return scores


def rank(scores: Array, top_k: int) -> Array:
    """Indexes of the candidates, best first; equal scores keep the request's order."""
    order = np.argsort(-scores, kind="stable")
    return order[:top_k] if top_k else order


def _finite(what: str, value: float) -> float:
    if not math.isfinite(value):
        raise InvalidRequestError(f"scoring.{what} must be finite, got {value}")
    return value


def _mean() -> Rule:
    return Rule("mean", (metadata.MEAN,), lambda outputs, _: outputs[metadata.MEAN])


def _quantile(level: float, least_mass: float) -> Rule:
    if not 0 < level < 1:
        raise InvalidRequestError(f"scoring.quantile.level must lie strictly between 0 and 1, got {level}")

    def score(outputs: Tensors, knots: Knots) -> Array:
        return quantile(outputs[metadata.CDF], knots, level, least_mass)

    return Rule("quantile", (metadata.CDF,), score)


def _ucb(kappa: float, variance: str) -> Rule:
    def score(outputs: Tensors, _: Knots) -> Array:
        return _double(outputs, metadata.MEAN) + kappa * _deviation(outputs, variance)

    return Rule("ucb", (metadata.MEAN, variance), score)


def _thompson(seed: int, scale: float, variance: str, item_columns: Sequence[Array]) -> Rule:
    """Posterior sampling: draws the model's error about each item. It does not draw the target, whose noise would
    dominate."""

    def score(outputs: Tensors, _: Knots) -> Array:
        drawn = standard_normal(seed, item_columns)
        return _double(outputs, metadata.MEAN) + scale * _deviation(outputs, variance) * drawn

    return Rule("thompson", (metadata.MEAN, variance), score)


def acquisition_rule(gamma: float) -> Rule:
    """The paper's hybrid acquisition, epistemic + gamma aleatoric."""

    def score(outputs: Tensors, _: Knots) -> Array:
        return _double(outputs, metadata.EPISTEMIC) + gamma * _double(outputs, metadata.ALEATORIC)

    return Rule("acquisition", (metadata.ALEATORIC, metadata.EPISTEMIC), score)


def _risk_averse(weight: float) -> Rule:
    def score(outputs: Tensors, _: Knots) -> Array:
        total = _double(outputs, metadata.ALEATORIC) + _double(outputs, metadata.EPISTEMIC)
        scores: Array = _double(outputs, metadata.MEAN) - weight * np.sqrt(np.maximum(total, 0))
        return scores

    return Rule("risk_averse", (metadata.MEAN, metadata.ALEATORIC, metadata.EPISTEMIC), score)


def _deviation(outputs: Tensors, variance: str) -> Array:
    """Square root of a variance [n]; slightly negative values, which rounding can cause, count as 0."""
    deviation: Array = np.sqrt(np.maximum(_double(outputs, variance), 0))
    return deviation


def _double(outputs: Tensors, name: str) -> Array:
    values: Array = outputs[name].astype(np.float64)
    return values
