"""The Open Inference Protocol (`inference.GRPCInferenceService`), so that Triton's clients can call Ghostless.

ModelInfer accepts the graph's inputs and returns its outputs unchanged, without scoring and without a context.
"""

from dataclasses import dataclass
from importlib.metadata import version as package_version
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from tritonclient.grpc import model_config_pb2, service_pb2_grpc
from tritonclient.grpc import service_pb2 as oip

from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.errors import InvalidRequestError, RequestError
from ghostless.contract.metadata import FeatureType
from serving.dataplane.pipeline import Query, Request, RequestLimits
from serving.dataplane.tensors import DATATYPES, read_tensor
from serving.engines.interface import Engine, ModelVersion
from serving.errors import ForbiddenError, NotFoundError, UnavailableError
from serving.transport.handler_threads import caller_of
from serving.transport.statuses import abort

SERVICE = oip.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
MODEL_INFER = f"/{SERVICE}/ModelInfer"
PLATFORM = "onnxruntime_onnx"
_CONFIG_TYPES: dict[FeatureType, str] = {"int64": "TYPE_INT64", "float32": "TYPE_FP32", "string": "TYPE_STRING"}


class InferRequest(Request):
    """A ModelInfer request."""

    __slots__ = ("_request",)

    def __init__(self, message: bytes) -> None:
        try:
            self._request = oip.ModelInferRequest.FromString(message)
        except DecodeError as error:
            raise InvalidRequestError(f"the message is not an inference.ModelInferRequest: {error}") from error

    @property
    def request_id(self) -> str:
        return str(self._request.id)

    def target(self) -> tuple[str, int]:
        return self._request.model_name, version_number(self._request.model_version)

    def plan(self, model: ModelVersion, limits: RequestLimits) -> "InferQuery":
        sent = _tensors(self._request)
        takes = {feature.name: feature for feature in model.metadata.features}
        if not takes.keys() <= sent.keys():
            raise InvalidRequestError(f"model {model.name!r} expects the inputs {sorted(takes)}, got {sorted(sent)}")
        inputs = {name: read_tensor(feature, *sent[name]) for name, feature in takes.items()}
        return InferQuery(
            model=model,
            inputs=inputs,
            rows=_common_rows(inputs, limits),
            wanted=_outputs(self._request, model),
            request_id=self.request_id,
            unknown=tuple(f"input {name!r}" for name in sorted(sent.keys() - takes.keys())),
        )


@dataclass(slots=True, eq=False)
class InferQuery(Query):
    def encode(self, outputs: Tensors) -> bytes:
        response = oip.ModelInferResponse(
            model_name=self.model.name,
            model_version=str(self.model.version),
            id=self.request_id,
            outputs=[
                oip.ModelInferResponse.InferOutputTensor(name=name, datatype="FP32", shape=outputs[name].shape)
                for name in self.wanted
            ],
            raw_output_contents=[outputs[name].tobytes() for name in self.wanted],
        )
        return bytes(response.SerializeToString())


def version_number(text: str) -> int:
    """Parse a version of the protocol, which is a string; empty means the version in service."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 19):
        raise NotFoundError(f"no version {text!r}; versions are numbers from 1")
    return int(text)


def _tensors(request: Any) -> dict[str, tuple[Any, bytes | None]]:
    """Each input with its raw contents, or None if the contents are typed."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidRequestError(f"{len(request.inputs)} inputs but {len(raw)} raw_input_contents")
    sent = {tensor.name: (tensor, raw[i] if raw else None) for i, tensor in enumerate(request.inputs)}
    if len(sent) != len(request.inputs):
        names = sorted(tensor.name for tensor in request.inputs)
        raise InvalidRequestError(f"inputs must have different names, got {names}")
    return sent


def _common_rows(inputs: dict[str, Array], limits: RequestLimits) -> int:
    lengths = {name: len(values) for name, values in inputs.items()}
    if len(set(lengths.values())) != 1:
        raise InvalidRequestError(f"inputs must have the same number of rows, got {lengths}")
    rows = next(iter(lengths.values()))
    if rows > limits.max_rows:
        raise InvalidRequestError(f"a request may have at most {limits.max_rows} rows, got {rows}")
    return rows


def _outputs(request: Any, model: ModelVersion) -> tuple[str, ...]:
    asked = tuple(dict.fromkeys(output.name for output in request.outputs)) or model.outputs
    unknown = set(asked).difference(model.outputs)
    if unknown:
        raise InvalidRequestError(f"model {model.name!r} has no output {sorted(unknown)}, it has {list(model.outputs)}")
    return asked


class InferenceService(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # generated without types
    """Methods that run on handler threads: liveness, readiness and metadata. gRPC defines the method names."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._draining = False

    def drain(self) -> None:
        """Report not ready from now on."""
        self._draining = True

    def ServerLive(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return oip.ServerLiveResponse(live=True)

    def ServerReady(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return oip.ServerReadyResponse(ready=not self._draining and self._engine.is_ready())

    def ModelReady(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        try:
            self._check_caller(request, context)
            self._engine.resolve(request.name, version_number(request.version))
        except ForbiddenError as error:
            abort(context, error)
        except (NotFoundError, UnavailableError):
            return oip.ModelReadyResponse(ready=False)
        return oip.ModelReadyResponse(ready=not self._draining)

    def ServerMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return oip.ServerMetadataResponse(name="ghostless", version=package_version("ghostless"))

    def ModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        model = self._resolve(request, context)
        loaded = [
            str(version.version)
            for status in self._engine.models()
            if status.name == model.name
            for version in status.versions
        ]
        response = oip.ModelMetadataResponse(name=model.name, versions=loaded, platform=PLATFORM)
        for feature in model.metadata.features:
            response.inputs.add(name=feature.name, datatype=DATATYPES[feature.type], shape=[-1])
        for name, width in output_widths(model).items():
            response.outputs.add(name=name, datatype="FP32", shape=[-1, width] if width else [-1])
        return response

    def ModelConfig(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        model = self._resolve(request, context)
        # max_batch_size is 0, because rows are the first dimension of the tensors, not Triton's batch dimension.
        config = model_config_pb2.ModelConfig(name=model.name, platform=PLATFORM, max_batch_size=0)
        for feature in model.metadata.features:
            kind = model_config_pb2.DataType.Value(_CONFIG_TYPES[feature.type])
            config.input.add(name=feature.name, data_type=kind, dims=[-1])
        for name, width in output_widths(model).items():
            config.output.add(name=name, data_type=model_config_pb2.TYPE_FP32, dims=[-1, width] if width else [-1])
        return oip.ModelConfigResponse(config=config)

    def RepositoryIndex(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        response = oip.RepositoryIndexResponse()
        caller = caller_of(context)
        for status in self._engine.models():
            if caller is not None and not caller.may_use(status.name):
                continue
            for version in status.versions:
                response.models.add(
                    name=status.name, version=str(version.version), state=version.state.name, reason=version.message
                )
        return response

    def _check_caller(self, request: Any, context: grpc.ServicerContext) -> None:
        caller = caller_of(context)
        if caller is not None:
            caller.check_model(request.name or self._engine.default_model())

    def _resolve(self, request: Any, context: grpc.ServicerContext) -> ModelVersion:
        try:
            self._check_caller(request, context)
            return self._engine.resolve(request.name, version_number(request.version))
        except RequestError as error:
            abort(context, error)
            raise


def _not_offered(self: InferenceService, request: Any, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "Ghostless does not offer this method of the Open Inference Protocol")


# With the generated base class, each call of such a method would log a traceback.
for _method in oip.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
    if _method.name not in vars(InferenceService):
        setattr(InferenceService, _method.name, _not_offered)


def output_widths(model: ModelVersion) -> dict[str, int]:
    """Number of columns of each output of the graph; 0 for those with one value per row."""
    widths = model.metadata.widths()
    return {name: widths.get(name, 0) for name in model.outputs}
