"""The Open Inference Protocol (`inference.GRPCInferenceService`), so that Triton's own clients can talk to Ghostless.

ModelInfer takes the graph's inputs and gives its outputs as they are, without scoring or a context to broadcast.
"""

import math
from importlib.metadata import version as package_version
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from tritonclient.grpc import model_config_pb2, service_pb2_grpc
from tritonclient.grpc import service_pb2 as oip

from ghostless.contract.arrays import Array, Tensors
from ghostless.contract.errors import InvalidRequestError, RequestError
from ghostless.contract.metadata import FeatureType
from serving.dataplane.facade import bounded
from serving.dataplane.tensors import DATATYPES, read_tensor
from serving.dataplane.validation import RequestLimits
from serving.engines.interface import Engine, Job, ModelVersion
from serving.errors import NotFoundError, UnavailableError
from serving.telemetry.recorder import Recorder
from serving.transport.call import InlineCall
from serving.transport.statuses import abort

SERVICE = oip.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
MODEL_INFER = f"/{SERVICE}/ModelInfer"
PLATFORM = "onnxruntime_onnx"
_CONFIG_TYPES: dict[FeatureType, str] = {"int64": "TYPE_INT64", "float32": "TYPE_FP32", "string": "TYPE_STRING"}


class InferHandler:
    """ModelInfer, served inline."""

    def __init__(
        self, engine: Engine, limits: RequestLimits, deadline_s: float, recorder: Recorder | None = None
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._deadline_s = deadline_s or math.inf
        self._recorder = recorder

    def __call__(self, message: bytes, call: InlineCall) -> None:
        try:
            request = oip.ModelInferRequest.FromString(message)
        except DecodeError as error:
            raise InvalidRequestError(f"the message is not an inference.ModelInferRequest: {error}") from error
        record = call.record
        if record is not None:
            record.request_id = request.id
        model = self._engine.resolve(request.model_name, version_number(request.model_version))
        if record is not None:
            record.model = model
        inputs = _inputs(request, model)
        rows = _common_rows(inputs, self._limits)
        asked = wanted = _outputs(request, model)
        if record is not None and self._recorder is not None:
            wanted = self._recorder.begin(record, request.id, inputs, rows, asked)
        deadline = bounded(call.deadline, self._deadline_s)
        job = _InferJob(request.id, asked, model, inputs, rows, wanted, deadline, record)
        job.attach(call, self._engine)
        self._engine.submit(job)


class _InferJob(Job):
    __slots__ = ("_asked", "_call", "_engine", "_id")

    def __init__(self, request_id: str, asked: tuple[str, ...], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._id = request_id
        self._asked = asked

    def attach(self, call: InlineCall, engine: Engine) -> None:
        self._call = call
        self._engine = engine

    def on_queued(self) -> None:
        self._call.watch(lambda: self._engine.cancel(self))

    def succeed(self, outputs: Tensors) -> None:
        response = oip.ModelInferResponse(
            model_name=self.model.name,
            model_version=str(self.model.version),
            id=self._id,
            outputs=[
                oip.ModelInferResponse.InferOutputTensor(name=name, datatype="FP32", shape=outputs[name].shape)
                for name in self._asked
            ],
            raw_output_contents=[outputs[name].tobytes() for name in self._asked],
        )
        message = response.SerializeToString()
        if self._call.record is not None:
            self._call.record.outputs = outputs
        self._call.answer(message)

    def fail(self, error: RequestError) -> None:
        self._call.fail(error)


def version_number(text: str) -> int:
    """The protocol's versions are texts, empty for the one in service."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 19):
        raise NotFoundError(f"no version {text!r}; versions are numbers from 1")
    return int(text)


def _inputs(request: Any, model: ModelVersion) -> dict[str, Array]:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidRequestError(f"{len(request.inputs)} inputs but {len(raw)} raw_input_contents")
    sent = {tensor.name: (tensor, raw[i] if raw else None) for i, tensor in enumerate(request.inputs)}
    takes = {feature.name: feature for feature in model.metadata.features}
    if len(sent) != len(request.inputs) or sent.keys() != takes.keys():
        names = sorted(tensor.name for tensor in request.inputs)
        raise InvalidRequestError(f"model {model.name!r} takes the inputs {sorted(takes)}, got {names}")
    return {name: read_tensor(feature, *sent[name]) for name, feature in takes.items()}


def _common_rows(inputs: dict[str, Array], limits: RequestLimits) -> int:
    lengths = {name: len(values) for name, values in inputs.items()}
    if len(set(lengths.values())) != 1:
        raise InvalidRequestError(f"inputs must have equally many rows, got {lengths}")
    rows = next(iter(lengths.values()))
    if rows > limits.max_rows:
        raise InvalidRequestError(f"{rows} rows, at most {limits.max_rows} are allowed in one request")
    return rows


def _outputs(request: Any, model: ModelVersion) -> tuple[str, ...]:
    asked = tuple(dict.fromkeys(output.name for output in request.outputs)) or model.outputs
    unknown = set(asked).difference(model.outputs)
    if unknown:
        raise InvalidRequestError(f"model {model.name!r} has no output {sorted(unknown)}, it has {list(model.outputs)}")
    return asked


class InferenceService(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # generated without types
    """Served on handler threads: liveness, readiness and metadata. Method names are gRPC's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._draining = False

    def drain(self) -> None:
        """Not ready from now on."""
        self._draining = True

    def ServerLive(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return oip.ServerLiveResponse(live=True)

    def ServerReady(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return oip.ServerReadyResponse(ready=not self._draining and self._engine.is_ready())

    def ModelReady(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        try:
            self._engine.resolve(request.name, version_number(request.version))
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
        # Rows are the tensors' own leading dimension, not Triton's batch dimension: hence max_batch_size 0.
        config = model_config_pb2.ModelConfig(name=model.name, platform=PLATFORM, max_batch_size=0)
        for feature in model.metadata.features:
            kind = model_config_pb2.DataType.Value(_CONFIG_TYPES[feature.type])
            config.input.add(name=feature.name, data_type=kind, dims=[-1])
        for name, width in output_widths(model).items():
            config.output.add(name=name, data_type=model_config_pb2.TYPE_FP32, dims=[-1, width] if width else [-1])
        return oip.ModelConfigResponse(config=config)

    def RepositoryIndex(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        response = oip.RepositoryIndexResponse()
        for status in self._engine.models():
            for version in status.versions:
                response.models.add(
                    name=status.name, version=str(version.version), state=version.state.name, reason=version.message
                )
        return response

    def _resolve(self, request: Any, context: grpc.ServicerContext) -> ModelVersion:
        try:
            return self._engine.resolve(request.name, version_number(request.version))
        except RequestError as error:
            abort(context, error)
            raise


def _not_offered(self: InferenceService, request: Any, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "Ghostless does not offer this method of the Open Inference Protocol")


# Left to the generated base class, each call of one would put a traceback into the log.
for _method in oip.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
    if _method.name not in vars(InferenceService):
        setattr(InferenceService, _method.name, _not_offered)


def output_widths(model: ModelVersion) -> dict[str, int]:
    """Columns of each output of the graph; 0 for those with one value a row."""
    widths = model.metadata.widths()
    return {name: widths.get(name, 0) for name in model.outputs}
