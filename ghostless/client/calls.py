"""A call as a value: its method, the bytes of its request, and the parser of its response. Both clients use it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy.typing as npt

from ghostless.client.models import Model, Models, parse_model, parse_models
from ghostless.client.outcomes import OutcomeReport, RequestIds, outcomes_request, parse_report
from ghostless.client.prediction import Prediction, parse_prediction
from ghostless.client.request import PredictArguments, predict_request
from ghostless.v1 import prediction_pb2 as pb

Answer = TypeVar("Answer")

_SERVICE = pb.DESCRIPTOR.services_by_name["PredictionService"].full_name


@dataclass(frozen=True)
class Call(Generic[Answer]):
    method: str
    request: bytes
    parse: Callable[[bytes], Answer]


def predict_call(arguments: PredictArguments) -> Call[Prediction]:
    return Call(f"/{_SERVICE}/Predict", predict_request(arguments).SerializeToString(), parse_prediction)


def list_models_call() -> Call[Models]:
    return Call(f"/{_SERVICE}/ListModels", pb.ListModelsRequest().SerializeToString(), parse_models)


def get_model_call(model: str, version: int) -> Call[Model]:
    request = pb.GetModelRequest(model=model, version=version)
    return Call(f"/{_SERVICE}/GetModel", request.SerializeToString(), parse_model)


def record_outcomes_call(request_ids: RequestIds, rows: npt.ArrayLike, actuals: npt.ArrayLike) -> Call[OutcomeReport]:
    request = outcomes_request(request_ids, rows, actuals)
    return Call(f"/{_SERVICE}/RecordOutcomes", request.SerializeToString(), parse_report)
