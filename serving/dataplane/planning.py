"""What requests to one model version have in common, worked out once instead of per request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ghostless.contract import metadata
from ghostless.contract.arrays import Array
from ghostless.contract.distribution import LEAST_MASS, Knots
from ghostless.contract.metadata import FeatureSpec
from ghostless.v1 import prediction_pb2 as pb
from serving.dataplane.template import AnswerTemplate
from serving.engines.interface import ModelVersion

# Which outputs of the graph each output of the API is made of.
GRAPH_OUTPUTS: dict[int, tuple[str, ...]] = {
    pb.OUTPUT_MEAN: (metadata.MEAN,),
    pb.OUTPUT_QUANTILES: (metadata.QUANTILES,),
    pb.OUTPUT_BINS: (metadata.BINS,),
    pb.OUTPUT_UNCERTAINTY: (metadata.ALEATORIC, metadata.EPISTEMIC),
    pb.OUTPUT_CATEGORICAL_UNCERTAINTY: (
        metadata.CATEGORICAL_ALEATORIC,
        metadata.CATEGORICAL_EPISTEMIC,
        metadata.CATEGORICAL_EPISTEMIC_DELTA,
    ),
    pb.OUTPUT_DENSITY: (metadata.DENSITY,),
}

PlanT = TypeVar("PlanT")
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ModelPlan:
    context: tuple[FeatureSpec, ...]
    candidates: tuple[FeatureSpec, ...]
    # Outputs of the API that the graph has what it takes for.
    offered: frozenset[int]
    # The graph's outputs for a request that asks for all that is offered and nothing special.
    wanted: tuple[str, ...]
    levels: Array
    knots: Knots
    # Whether the CDF is calibrated, and quantiles read from it are those that the graph returns.
    cdf_is_calibrated: bool
    # As distribution.quantiles takes it, to invert the CDF as the graph does.
    least_mass: float
    # The graph's output that holds the candidates' own epistemic variance.
    candidate_variance: str
    # Columns that say which item a candidate is.
    item_columns: tuple[str, ...]
    # By outputs of the API and number of rows.
    templates: dict[tuple[frozenset[int], int], AnswerTemplate] = field(default_factory=dict)


def _once_per_model(make: Callable[[ModelVersion], PlanT]) -> Callable[[ModelVersion], PlanT]:
    """Forgotten together with the model version, so that one taken out of service can be freed."""
    made: WeakKeyDictionary[ModelVersion, PlanT] = WeakKeyDictionary()

    @wraps(make)
    def get(model: ModelVersion) -> PlanT:
        result = made.get(model)
        if result is None:
            result = made[model] = make(model)
        return result

    return get


@_once_per_model
def plan_of(model: ModelVersion) -> ModelPlan:
    there = set(model.outputs)
    offered = frozenset(output for output, parts in GRAPH_OUTPUTS.items() if there.issuperset(parts))
    features = model.metadata.features
    candidates = tuple(feature for feature in features if feature.role == "candidate")
    calibrated = model.metadata.format >= metadata.CALIBRATED_CDF
    return ModelPlan(
        context=tuple(feature for feature in features if feature.role == "context"),
        candidates=candidates,
        offered=offered,
        wanted=graph_outputs(model, offered),
        levels=np.asarray(model.metadata.levels, dtype=np.float32),
        knots=np.asarray(model.metadata.knots, dtype=np.float32),
        cdf_is_calibrated=calibrated,
        least_mass=LEAST_MASS if calibrated else 0.0,
        candidate_variance=metadata.candidate_variance(model.outputs),
        # Without ids, an item is all that the model knows of it.
        item_columns=model.metadata.id_columns("candidate") or tuple(feature.name for feature in candidates),
    )


def graph_outputs(model: ModelVersion, outputs: frozenset[int]) -> tuple[str, ...]:
    """What the graph must return to answer with these outputs of the API, in the graph's order."""
    names = {name for output in outputs for name in GRAPH_OUTPUTS[output]}
    if pb.OUTPUT_UNCERTAINTY in outputs:
        names |= {metadata.LOGIT_VARIANCE, metadata.EPISTEMIC_CANDIDATE, metadata.EPISTEMIC_LAST_LAYER}
    if pb.OUTPUT_BINS in outputs:
        names.add(metadata.ATOMS)
    return tuple(name for name in model.outputs if name in names)


def exported(plan: ModelPlan, model: ModelVersion, levels: Array) -> BoolArray:
    """Which of these levels the graph itself returns, [levels]."""
    return np.isin(levels, plan.levels) & (metadata.QUANTILES in model.outputs)
