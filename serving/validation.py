"""A Predict request checked before any work is spent on it: what came, what was expected, what to do."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ghostless.v1 import prediction_pb2 as pb
from google.protobuf.message import DecodeError

from serving import metadata
from serving.columns import broadcast, column_length, finite_floats, to_array
from serving.engines.interface import Array, Engine, ModelVersion
from serving.errors import InvalidRequestError
from serving.scoring import Rule, parse_rule

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


@dataclass(frozen=True)
class RequestLimits:
    max_rows: int = 10_000
    max_levels: int = 200


@dataclass(frozen=True, slots=True)
class Query:
    """A request that can be run: checked, and its columns in numpy."""

    model: ModelVersion
    inputs: dict[str, Array]
    rows: int
    outputs: frozenset[int]
    wanted: tuple[str, ...]
    # Empty: the exported levels.
    levels: Array
    thresholds: Array
    rule: Rule | None
    top_k: int
    request_id: str


def parse_request(message: bytes) -> pb.PredictRequest:
    try:
        return pb.PredictRequest.FromString(message)
    except DecodeError as broken:
        raise InvalidRequestError(f"the message is not a ghostless.v1.PredictRequest: {broken}") from broken


def check_request(request: pb.PredictRequest, engine: Engine, limits: RequestLimits) -> Query:
    if request.version < 0:
        raise InvalidRequestError(f"version is {request.version}, expected 0 (the one in service) or a version number")
    model = engine.resolve(request.model, request.version)
    rows = _count_rows(request, model, limits)
    inputs = _inputs(request, model, rows)
    outputs = _outputs(request, model)
    levels = _levels(request, limits)
    thresholds = finite_floats(request.thresholds, "thresholds")
    if len(thresholds) > limits.max_levels:
        raise InvalidRequestError(f"{len(thresholds)} thresholds, at most {limits.max_levels} are allowed")
    rule = parse_rule(request)
    wanted = _wanted(model, outputs, levels, thresholds, rule)
    return Query(model, inputs, rows, outputs, wanted, levels, thresholds, rule, request.top_k, request.request_id)


def offered_outputs(model: ModelVersion) -> frozenset[int]:
    """Outputs of the API that this model's graph has what it takes for."""
    there = set(model.outputs)
    return frozenset(output for output, parts in GRAPH_OUTPUTS.items() if there.issuperset(parts))


def _count_rows(request: pb.PredictRequest, model: ModelVersion, limits: RequestLimits) -> int:
    lengths = {name: column_length(request.candidates[name]) for name in request.candidates}
    if not lengths:
        names = [f.name for f in model.metadata.features if f.role == "candidate"]
        raise InvalidRequestError(f"there are no candidates; send the columns {', '.join(names)}")
    rows = next(iter(lengths.values()))
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {length}" for name, length in sorted(lengths.items()))
        raise InvalidRequestError(f"candidate columns must be of equal length, got {listed}")
    if rows == 0:
        raise InvalidRequestError("there are zero candidates; every candidate column is empty")
    if rows > limits.max_rows:
        raise InvalidRequestError(f"{rows} candidates, at most {limits.max_rows} are allowed in one request")
    return rows


def _inputs(request: pb.PredictRequest, model: ModelVersion, rows: int) -> dict[str, Array]:
    inputs: dict[str, Array] = {}
    context, candidates = request.context, request.candidates
    for feature in model.metadata.features:
        name = feature.name
        if feature.role == "candidate":
            if name not in candidates:
                raise InvalidRequestError(_missing(name, feature.type, "candidates", "context", context))
            inputs[name] = to_array(feature, candidates[name])
        else:
            if name not in context:
                raise InvalidRequestError(_missing(name, feature.type, "context", "candidates", candidates))
            values = to_array(feature, context[name])
            if len(values) != 1:
                raise InvalidRequestError(f"context feature {name!r} must have exactly 1 row, got {len(values)}")
            inputs[name] = broadcast(values, rows)
    if len(inputs) != len(context) + len(candidates):
        known = {feature.name: feature.role for feature in model.metadata.features}
        for role, columns in (("context", context), ("candidate", candidates)):
            for name in columns:
                if known.get(name) != role:
                    raise InvalidRequestError(
                        f"unknown {role} feature {name!r}; model {model.name!r} version {model.version} takes "
                        + ", ".join(f"{feature} ({its_role})" for feature, its_role in known.items())
                    )
    return inputs


def _missing(name: str, kind: str, where: str, elsewhere: str, others: Mapping[str, pb.Column]) -> str:
    hint = f"; it came in `{elsewhere}`, send it in `{where}`" if name in others else ""
    return f"feature {name!r} ({kind}) is missing from `{where}`{hint}"


def _outputs(request: pb.PredictRequest, model: ModelVersion) -> frozenset[int]:
    offered = offered_outputs(model)
    if not request.outputs:
        return offered
    asked = frozenset(request.outputs)
    if request.quantile_levels:
        asked |= {pb.OUTPUT_QUANTILES}
    for output in asked:
        if output not in GRAPH_OUTPUTS:
            raise InvalidRequestError(f"{output} is no output; expected values of ghostless.v1.Output from 1")
        # Levels of the client's own can be read from the CDF even if none were exported.
        from_cdf = output == pb.OUTPUT_QUANTILES and request.quantile_levels and metadata.CDF in model.outputs
        if output not in offered and not from_cdf:
            names = ", ".join(pb.Output.Name(known) for known in sorted(offered))
            raise InvalidRequestError(
                f"model {model.name!r} version {model.version} has no {pb.Output.Name(output)}; it has {names}"
            )
    return asked


def _levels(request: pb.PredictRequest, limits: RequestLimits) -> Array:
    levels = finite_floats(request.quantile_levels, "quantile_levels")
    if len(levels) > limits.max_levels:
        raise InvalidRequestError(f"{len(levels)} quantile_levels, at most {limits.max_levels} are allowed")
    outside = levels[(levels <= 0) | (levels >= 1)]
    if len(outside):
        raise InvalidRequestError(f"quantile_levels must lie strictly between 0 and 1, got {outside[0]}")
    return levels


def _wanted(
    model: ModelVersion, outputs: frozenset[int], levels: Array, thresholds: Array, rule: Rule | None
) -> tuple[str, ...]:
    """The graph's outputs that answer the query, in the graph's order."""
    names = {name for output in outputs if output in GRAPH_OUTPUTS for name in GRAPH_OUTPUTS[output]}
    if pb.OUTPUT_UNCERTAINTY in outputs and metadata.LOGIT_VARIANCE in model.outputs:
        names.add(metadata.LOGIT_VARIANCE)
    needs_cdf = []
    if pb.OUTPUT_QUANTILES in outputs and len(levels) and not are_exported(model, levels):
        names.discard(metadata.QUANTILES)
        needs_cdf.append("quantile_levels other than the exported ones")
    if len(thresholds):
        needs_cdf.append("thresholds")
    if rule is not None:
        names.update(rule.needs)
        if metadata.CDF in rule.needs:
            needs_cdf.append(f"{rule.name} scoring")
    if needs_cdf:
        names.add(metadata.CDF)
    missing = names.difference(model.outputs)
    if missing:
        asked = ", ".join(needs_cdf) if metadata.CDF in missing else f"{rule.name} scoring" if rule else "the request"
        raise InvalidRequestError(
            f"{asked} needs {', '.join(sorted(missing))}, which model {model.name!r} version {model.version} "
            "was exported without"
        )
    return tuple(name for name in model.outputs if name in names)


def are_exported(model: ModelVersion, levels: Array) -> bool:
    """Whether the graph itself returns every one of these levels."""
    if metadata.QUANTILES not in model.outputs:
        return False
    return bool(np.isin(levels, np.asarray(model.metadata.levels, dtype=np.float32)).all())
