"""Converts the graph's outputs to the bytes of a PredictResponse with only the requested outputs.

A protobuf message may be written in pieces, in any order: the parts that most requests need come from a template, and
those that are specific to a request are added to it.
"""

from dataclasses import dataclass

import numpy as np

from ghostless.contract import metadata
from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.distribution import exceedance, quantiles
from ghostless.contract.encoding import float_payload, header, index_payload
from ghostless.v1 import prediction_pb2 as pb
from serving.dataplane.model_plan import RESPONSE, ModelPlan, exported, field_numbers
from serving.dataplane.pipeline import Query
from serving.dataplane.scoring import Rule, rank, score_rows

_QUANTILES = field_numbers(pb.Quantiles)


@dataclass(slots=True, eq=False)
class PredictQuery(Query):
    plan: ModelPlan
    # Outputs of the API in the response.
    outputs: frozenset[int]
    # Empty means the exported levels.
    levels: Array
    thresholds: Array
    rule: Rule | None
    top_k: int

    def encode(self, outputs: Tensors) -> bytes:
        # Levels chosen by the client change the shape of the quantiles, so the template does not include them.
        usual = self.outputs - {pb.OUTPUT_QUANTILES} if len(self.levels) else self.outputs
        parts = self.plan.template(self.model, usual, self.rows).fill(outputs)
        if self.request_id:
            text = self.request_id.encode()
            parts += (header(RESPONSE["request_id"], len(text)), text)
        if len(self.levels):
            message = _quantiles(self, outputs)
            parts += (header(RESPONSE["quantiles"], len(message)), message)
        if len(self.thresholds):
            above = exceedance(outputs[metadata.CDF], self.plan.knots, self.thresholds)
            parts.append(float_payload(RESPONSE["exceedance"], above))
        if self.rule is not None:
            scores = score_rows(self.rule, outputs, self.plan.knots)
            parts.append(float_payload(RESPONSE["score"], scores))
            parts.append(index_payload(RESPONSE["ranking"], rank(scores, self.top_k)))
        return b"".join(parts)


def _quantiles(query: PredictQuery, outputs: Tensors) -> bytes:
    levels, plan = query.levels, query.plan
    there = exported(plan, query.model, levels)
    if there.all():
        columns = (levels[:, None] == plan.levels).argmax(axis=1)
        values: Array = outputs[metadata.QUANTILES][:, columns]
    else:
        values = quantiles(outputs[metadata.CDF], plan.knots, levels, plan.least_mass)
        if plan.cdf_is_calibrated and there.any():
            values = _beside_exported(values, levels, outputs[metadata.QUANTILES], plan.levels)
    return float_payload(_QUANTILES["levels"], levels) + float_payload(_QUANTILES["values"], values)


def _beside_exported(values: Array, levels: Array, known: Array, known_levels: Array) -> Array:
    """Quantiles [n, levels] with exported levels replaced by the graph's own values, known [n, known_levels], and the
    others clipped between these. Both come from the same CDF, but with different rounding."""
    place = np.searchsorted(known_levels, levels, side="left")
    at = np.minimum(place, len(known_levels) - 1)
    same = known_levels[at] == levels
    below = np.where(place > 0, known[:, np.maximum(place - 1, 0)], -np.inf)
    above = np.where(place < len(known_levels), known[:, at], np.inf)
    merged: Array = np.where(same, known[:, at], np.clip(values, below, above)).astype(np.float32)
    return merged
