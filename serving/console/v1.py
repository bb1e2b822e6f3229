"""/v1: the methods of ghostless.v1.PredictionService as JSON."""

import hashlib
import threading
import time

from ghostless.v1 import prediction_pb2 as pb
from serving.console.backend import Backend
from serving.console.predict_json import FeatureTypes, needs_types, parse_message, predict_request
from serving.console.proto_json import message_json
from serving.console.responses import HttpError, Request, Response

# How long the types of a model's features are cached; a new version may have other types.
_REMEMBERED_S = 2.0
_MAX_REMEMBERED = 256


class Predictions:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._types: dict[tuple[str, str, int], tuple[float, FeatureTypes]] = {}

    def predict(self, request: Request, authorization: str) -> Response:
        content = request.json_object()
        types: FeatureTypes = {}
        if needs_types(content):
            model, version = content.get("model", ""), content.get("version", 0)
            if isinstance(model, str) and isinstance(version, int) and 0 <= version < 1 << 63:
                types = self._feature_types(request, model, version, authorization)
        message = predict_request(content, types)
        return Response(message_json(self._backend.predict(request, message, authorization)))

    def list_models(self, request: Request, authorization: str) -> Response:
        return Response(message_json(self._backend.list_models(request, authorization)))

    def get_model(self, request: Request, authorization: str) -> Response:
        version = version_number(request.parts[1]) if len(request.parts) > 1 else 0
        return Response(message_json(self._backend.get_model(request, request.parts[0], version, authorization)))

    def record_outcomes(self, request: Request, authorization: str) -> Response:
        message = parse_message(request.json_object(), pb.RecordOutcomesRequest())
        return Response(message_json(self._backend.record_outcomes(request, message, authorization)))

    def _feature_types(self, request: Request, model: str, version: int, authorization: str) -> FeatureTypes:
        """Types of the model's features; empty if the caller may not read the model, or if it does not exist."""
        key = (hashlib.sha256(authorization.encode("utf-8", "replace")).hexdigest(), model, version)
        now = time.monotonic()
        with self._lock:
            known = self._types.get(key)
        if known is not None and known[0] > now:
            return known[1]
        try:
            found = self._backend.get_model(request, model, version, authorization)
            types = {feature.name: int(feature.type) for feature in found.features}
        except HttpError as error:
            if error.code not in ("NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED"):
                raise
            types = {}  # Predict reports the error, or is allowed without the types
        with self._lock:
            if len(self._types) >= _MAX_REMEMBERED:
                self._types.clear()
            self._types[key] = (now + _REMEMBERED_S, types)
        return types


def version_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 19):
        raise HttpError("NOT_FOUND", f"no version {text[:40]!r}; versions are numbers from 1")
    return int(text)
