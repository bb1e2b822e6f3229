"""The server's description of its models."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from ghostless.client.errors import MalformedAnswerError
from ghostless.contract.metadata import FeatureSpec, FeatureType, Role, TargetSpec
from ghostless.v1 import prediction_pb2 as pb

_TYPES: dict[int, FeatureType] = {
    pb.Feature.INT64: "int64",
    pb.Feature.FLOAT: "float32",
    pb.Feature.STRING: "string",
}
_ROLES: dict[int, Role] = {pb.Feature.CONTEXT: "context", pb.Feature.CANDIDATE: "candidate"}


@dataclass(frozen=True)
class Version:
    """One version of a model; `state` is loading, ready or failed, and `message` says why it failed."""

    version: int
    state: str
    in_service: bool
    message: str


@dataclass(frozen=True)
class Model:
    """A model and the description of one of its versions."""

    name: str
    version: int
    versions: tuple[Version, ...]
    head: str
    method: str
    features: tuple[FeatureSpec, ...]
    target: TargetSpec
    outputs: tuple[str, ...]
    """What `predict` returns if its `outputs` is empty."""
    levels: tuple[float, ...]
    edges: tuple[float, ...]
    density_grid: tuple[float, ...]
    atoms: tuple[float, ...]
    metadata: Mapping[str, str]
    outputs_on_request: tuple[str, ...] = ()
    """What `predict` returns only if its `outputs` names it."""


@dataclass(frozen=True)
class Models:
    """All models of the server. `default` is the model for requests that do not name one; `workers` is the number of
    worker processes of the server, 0 if the server does not report it."""

    default: str
    models: tuple[Model, ...]
    workers: int = 0


def parse_model(answer: bytes) -> Model:
    try:
        return _model(pb.Model.FromString(answer))
    except DecodeError as error:
        raise MalformedAnswerError(f"the response is not a ghostless.v1.Model: {error}") from error


def parse_models(answer: bytes) -> Models:
    try:
        message = pb.ListModelsResponse.FromString(answer)
    except DecodeError as error:
        raise MalformedAnswerError(f"the response is not a ghostless.v1.ListModelsResponse: {error}") from error
    return Models(message.default_model, tuple(_model(model) for model in message.models), message.workers)


def _model(message: pb.Model) -> Model:
    return Model(
        name=message.name,
        version=message.version,
        versions=tuple(
            Version(v.version, pb.Model.State.Name(v.state).lower(), v.in_service, v.message) for v in message.versions
        ),
        head=message.head,
        method=message.method,
        features=tuple(
            FeatureSpec(f.name, _TYPES[f.type], _ROLES[f.role], f.vocabulary_size) for f in message.features
        ),
        target=TargetSpec(message.target.name, message.target.unit, message.target.low, message.target.high),
        outputs=_output_names(message.outputs),
        levels=tuple(message.quantile_levels),
        edges=tuple(message.edges),
        density_grid=tuple(message.density_grid),
        atoms=tuple(message.atoms),
        metadata=dict(message.metadata),
        outputs_on_request=_output_names(message.outputs_on_request),
    )


def _output_names(outputs: Iterable[int]) -> tuple[str, ...]:
    """Names as `predict` takes them. Outputs that a newer server has and this client can't request are left out."""
    known = pb.Output.values()
    return tuple(pb.Output.Name(output).removeprefix("OUTPUT_").lower() for output in outputs if output in known)
