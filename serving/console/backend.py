"""Calls the workers over gRPC, as any client does, so their checks, deadlines, limits and identities apply."""

import itertools
import math
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as oip

from ghostless.v1 import prediction_pb2 as pb
from serving.console.responses import HttpError, Request
from serving.console.settings import ConsoleSettings

_PREDICTION = f"/{pb.DESCRIPTOR.services_by_name['PredictionService'].full_name}"
_INFERENCE = f"/{oip.DESCRIPTOR.services_by_name['GRPCInferenceService'].full_name}"
# The server has its own deadline (--deadline-ms); this one is for a server that does not answer at all.
_TIMEOUT_S = 60.0
TIMEOUT_HEADER = "ghostless-timeout-ms"
_PASSED_ON = ("traceparent", "tracestate")
_RETRY_AFTER = "retry-after-ms"
_OPTIONS = (
    # Without this option, all channels of a process to one address share one connection, and thus one worker.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
)

AnswerT = TypeVar("AnswerT", bound=Message)


class Backend:
    """A connection for each worker, used in turn."""

    def __init__(self, settings: ConsoleSettings) -> None:
        target = f"unix:{settings.directory}/workers.sock"
        self._channels = [grpc.insecure_channel(target, _OPTIONS) for _ in range(settings.workers)]
        self._turn = itertools.cycle(self._channels)
        self._lock = threading.Lock()

    def predict(self, request: Request, message: pb.PredictRequest, authorization: str) -> pb.PredictResponse:
        return self._call(request, f"{_PREDICTION}/Predict", message, pb.PredictResponse, authorization)

    def list_models(self, request: Request, authorization: str) -> pb.ListModelsResponse:
        message = pb.ListModelsRequest()
        return self._call(request, f"{_PREDICTION}/ListModels", message, pb.ListModelsResponse, authorization)

    def get_model(self, request: Request, name: str, version: int, authorization: str) -> pb.Model:
        message = pb.GetModelRequest(model=name, version=version)
        return self._call(request, f"{_PREDICTION}/GetModel", message, pb.Model, authorization)

    def record_outcomes(
        self, request: Request, message: pb.RecordOutcomesRequest, authorization: str
    ) -> pb.RecordOutcomesResponse:
        kind = pb.RecordOutcomesResponse
        return self._call(request, f"{_PREDICTION}/RecordOutcomes", message, kind, authorization)

    def inference(self, request: Request, method: str, message: Any, kind: Any, authorization: str) -> Any:
        """A method of the Open Inference Protocol."""
        return self._call(request, f"{_INFERENCE}/{method}", message, kind, authorization)

    def _call(
        self, request: Request, method: str, message: Message, kind: type[AnswerT], authorization: str
    ) -> AnswerT:
        metadata = [(name, request.headers[name]) for name in _PASSED_ON if name in request.headers]
        if authorization:
            metadata.append(("authorization", authorization))
        for name, value in metadata:
            if not (value.isascii() and value.isprintable()):
                raise HttpError("INVALID_ARGUMENT", f"the header {name} has characters that are not printable ASCII")
        with self._lock:
            channel = next(self._turn)
        stub: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        try:
            answer = stub(message.SerializeToString(), timeout=timeout_s(request.headers), metadata=tuple(metadata))
        except grpc.RpcError as error:
            raise http_error(error) from error
        return kind.FromString(answer)


def timeout_s(headers: Mapping[str, str]) -> float:
    text = headers.get(TIMEOUT_HEADER, "")
    if not text:
        return _TIMEOUT_S
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 1 <= milliseconds < math.inf:
        raise HttpError("INVALID_ARGUMENT", f"{TIMEOUT_HEADER} is {text[:40]!r}, expected milliseconds from 1")
    return min(milliseconds / 1000, _TIMEOUT_S)


def http_error(error: Any) -> HttpError:
    """A gRPC status as an HTTP error. RESOURCE_EXHAUSTED without a retry delay: the request is too large."""
    code = error.code().name
    trailing = dict(error.trailing_metadata() or ())
    headers: tuple[tuple[str, str], ...] = ()
    if code == "UNAUTHENTICATED":
        headers = (("WWW-Authenticate", "Bearer"),)
    elif code == "RESOURCE_EXHAUSTED":
        wait_ms = trailing.get(_RETRY_AFTER)
        if wait_ms is None:
            code = "TOO_LARGE"
        else:
            headers = (("Retry-After", str(max(1, math.ceil(int(wait_ms) / 1000)))), ("Retry-After-Ms", str(wait_ms)))
    elif code == "UNAVAILABLE":
        headers = (("Retry-After", "1"),)
    return HttpError(code, error.details() or code, headers)
