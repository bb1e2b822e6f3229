"""From the graph's outputs to the bytes of a PredictResponse: only what was asked for is made and written."""

from typing import Any

from ghostless.v1 import prediction_pb2 as pb

from serving import metadata
from serving.distribution import exceedance, quantiles
from serving.encoding import MessageWriter
from serving.engines.interface import Array, Tensors
from serving.scoring import rank, score_rows
from serving.validation import Query, are_exported


def _numbers(message: Any) -> dict[str, int]:
    """Field numbers by name, so that the .proto file stays their only source."""
    return {field.name: field.number for field in message.DESCRIPTOR.fields}


_RESPONSE = _numbers(pb.PredictResponse)
_QUANTILES = _numbers(pb.Quantiles)
_BINS = _numbers(pb.Bins)
_DENSITY = _numbers(pb.Density)
_UNCERTAINTY = _numbers(pb.Uncertainty)
_CATEGORICAL = _numbers(pb.CategoricalUncertainty)


def encode_answer(query: Query, outputs: Tensors) -> bytes:
    described = query.model.metadata
    asked = query.outputs
    response = MessageWriter()
    response.text(_RESPONSE["model"], query.model.name)
    response.number(_RESPONSE["version"], query.model.version)
    response.text(_RESPONSE["request_id"], query.request_id)
    response.number(_RESPONSE["rows"], query.rows)
    if pb.OUTPUT_MEAN in asked:
        response.floats(_RESPONSE["mean"], outputs[metadata.MEAN])
    if pb.OUTPUT_QUANTILES in asked:
        response.message(_RESPONSE["quantiles"], _quantiles(query, outputs))
    if pb.OUTPUT_BINS in asked:
        bins = MessageWriter()
        bins.constants(_BINS["edges"], described.edges)
        bins.floats(_BINS["probabilities"], outputs[metadata.BINS])
        response.message(_RESPONSE["bins"], bins)
    if pb.OUTPUT_UNCERTAINTY in asked:
        response.message(_RESPONSE["uncertainty"], _uncertainty(outputs))
    if pb.OUTPUT_CATEGORICAL_UNCERTAINTY in asked:
        response.message(_RESPONSE["categorical_uncertainty"], _categorical_uncertainty(outputs))
    if pb.OUTPUT_DENSITY in asked:
        density = MessageWriter()
        density.constants(_DENSITY["grid"], described.grid)
        density.floats(_DENSITY["values"], outputs[metadata.DENSITY])
        response.message(_RESPONSE["density"], density)
    if len(query.thresholds):
        above = exceedance(outputs[metadata.CDF], query.plan.knots, query.thresholds)
        response.floats(_RESPONSE["exceedance"], above)
    if query.rule is not None:
        scores = score_rows(query.rule, outputs, query.plan.knots)
        response.floats(_RESPONSE["score"], scores)
        response.indexes(_RESPONSE["ranking"], rank(scores, query.top_k))
    return response.finish()


def _quantiles(query: Query, outputs: Tensors) -> MessageWriter:
    message = MessageWriter()
    levels, plan = query.levels, query.plan
    if not len(levels):
        message.constants(_QUANTILES["levels"], query.model.metadata.levels)
        message.floats(_QUANTILES["values"], outputs[metadata.QUANTILES])
        return message
    message.floats(_QUANTILES["levels"], levels)
    if are_exported(plan, query.model, levels):
        columns = (levels[:, None] == plan.levels).argmax(axis=1)
        values: Array = outputs[metadata.QUANTILES][:, columns]
    else:
        values = quantiles(outputs[metadata.CDF], plan.knots, levels)
    message.floats(_QUANTILES["values"], values)
    return message


def _uncertainty(outputs: Tensors) -> MessageWriter:
    message = MessageWriter()
    aleatoric, epistemic = outputs[metadata.ALEATORIC], outputs[metadata.EPISTEMIC]
    message.floats(_UNCERTAINTY["aleatoric"], aleatoric)
    message.floats(_UNCERTAINTY["epistemic"], epistemic)
    message.floats(_UNCERTAINTY["total"], aleatoric + epistemic)
    if metadata.LOGIT_VARIANCE in outputs:
        message.floats(_UNCERTAINTY["logit_variance"], outputs[metadata.LOGIT_VARIANCE])
    return message


def _categorical_uncertainty(outputs: Tensors) -> MessageWriter:
    message = MessageWriter()
    aleatoric = outputs[metadata.CATEGORICAL_ALEATORIC]
    epistemic = outputs[metadata.CATEGORICAL_EPISTEMIC]
    message.floats(_CATEGORICAL["aleatoric"], aleatoric)
    message.floats(_CATEGORICAL["epistemic"], epistemic)
    message.floats(_CATEGORICAL["total"], aleatoric + epistemic)
    message.floats(_CATEGORICAL["epistemic_delta"], outputs[metadata.CATEGORICAL_EPISTEMIC_DELTA])
    return message
