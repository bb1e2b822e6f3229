"""The methods of ghostless.v1.PredictionService other than Predict (pipeline.py): models and outcomes."""

import grpc

from ghostless.contract.errors import RequestError
from ghostless.contract.metadata import FeatureType, Role
from ghostless.v1 import prediction_pb2 as pb
from ghostless.v1 import prediction_pb2_grpc as pb_grpc
from serving.dataplane.model_plan import plan_of
from serving.engines.interface import Engine, ModelStatus, ModelVersion, VersionState
from serving.errors import NotFoundError, UnsupportedError
from serving.outcomes.service import OutcomeService
from serving.transport.handler_threads import caller_of
from serving.transport.statuses import abort

SERVICE = pb.DESCRIPTOR.services_by_name["PredictionService"].full_name
PREDICT = f"/{SERVICE}/Predict"

_TYPES: dict[FeatureType, pb.Feature.Type] = {
    "int64": pb.Feature.INT64,
    "float32": pb.Feature.FLOAT,
    "string": pb.Feature.STRING,
}
_ROLES: dict[Role, pb.Feature.Role] = {"context": pb.Feature.CONTEXT, "candidate": pb.Feature.CANDIDATE}
_STATES = {
    VersionState.LOADING: pb.Model.LOADING,
    VersionState.READY: pb.Model.READY,
    VersionState.FAILED: pb.Model.FAILED,
}


class PredictionService(pb_grpc.PredictionServiceServicer):
    """Methods that run on handler threads: listing and describing models, and recording outcomes."""

    def __init__(self, engine: Engine, outcomes: OutcomeService | None = None) -> None:
        self._engine = engine
        self._outcomes = outcomes

    def ListModels(  # noqa: N802  # gRPC's name
        self, request: pb.ListModelsRequest, context: grpc.ServicerContext
    ) -> pb.ListModelsResponse:
        caller = caller_of(context)
        models = [
            describe(status, status.serving)
            for status in self._engine.models()
            if caller is None or caller.may_use(status.name)
        ]
        return pb.ListModelsResponse(models=models, default_model=self._engine.default_model())

    def GetModel(self, request: pb.GetModelRequest, context: grpc.ServicerContext) -> pb.Model:  # noqa: N802
        try:
            caller = caller_of(context)
            if caller is not None:
                caller.check_model(request.model or self._engine.default_model())
            version = self._engine.resolve(request.model, request.version)
            status = next((s for s in self._engine.models() if s.name == version.name), None)
            if status is None:
                raise NotFoundError(f"model {version.name!r} has just been removed")
            return describe(status, version)
        except RequestError as error:
            abort(context, error)
            raise

    def RecordOutcomes(  # noqa: N802
        self, request: pb.RecordOutcomesRequest, context: grpc.ServicerContext
    ) -> pb.RecordOutcomesResponse:
        try:
            if self._outcomes is None:
                raise UnsupportedError(
                    "this server does not store predictions, so outcomes cannot be matched; set --outcome-store-mb and "
                    "--metrics-port"
                )
            return self._outcomes.record(request)
        except RequestError as error:
            abort(context, error)
            raise


def describe(status: ModelStatus, version: ModelVersion | None) -> pb.Model:
    """The model with its versions, and the description of one of them."""
    model = pb.Model(
        name=status.name,
        versions=[
            pb.Model.Version(version=v.version, state=_STATES[v.state], in_service=v.in_service, message=v.message)
            for v in status.versions
        ],
    )
    if version is None:
        return model
    described, plan = version.metadata, plan_of(version)
    model.MergeFrom(
        pb.Model(
            version=version.version,
            head=described.head,
            method=described.method,
            features=[
                pb.Feature(name=f.name, type=_TYPES[f.type], role=_ROLES[f.role], vocabulary_size=f.vocabulary)
                for f in described.features
            ],
            target=pb.Target(
                name=described.target.name,
                unit=described.target.unit,
                low=described.target.low,
                high=described.target.high,
            ),
            outputs=sorted(plan.offered),  # type: ignore[arg-type]  # enum values are ints
            outputs_on_request=sorted(plan.on_request),  # type: ignore[arg-type]
            quantile_levels=described.levels,
            edges=described.edges,
            density_grid=described.grid,
            atoms=described.atoms,
            metadata=version.properties,
        )
    )
    return model
