"""/openapi.json: the HTTP API described for people and generators. Schemas come from the proto's descriptors."""

from importlib.metadata import version as package_version
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from ghostless.v1 import prediction_pb2 as pb
from serving.console.backend import TIMEOUT_HEADER

_INTEGERS = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_UINT32)
_MESSAGES = (
    *(pb.PredictRequest, pb.PredictResponse, pb.ListModelsResponse, pb.Model),
    *(pb.RecordOutcomesRequest, pb.RecordOutcomesResponse),
)
_ABOUT = """\
Whole predictive distributions for ranking candidates, over HTTP. Names and meaning are those of
`protos/ghostless/v1/prediction.proto`; every call is passed on to the workers over gRPC, so validation, deadlines,
limits and identities are the same. Send a token as `Authorization: Bearer TOKEN` if the server has identities. An
error is `{"error": what is wrong and what to do, "code": gRPC's code, "status": HTTP's}`.
"""
_ERRORS = {
    "400": "the request is wrong; `error` says what came and what was expected",
    "401": "a valid bearer token is needed",
    "403": "the identity may not make this call or use this model",
    "404": "no such model, version or path",
    "413": "the request is too large",
    "429": "overload, or a limit of the identity; `Retry-After` says how long to wait",
    "500": "an error of the server",
    "501": "the server does not have this feature",
    "503": "no worker or model is ready",
    "504": "the deadline has passed",
}


def openapi() -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for message in _MESSAGES:
        _add_schema(message.DESCRIPTOR, schemas)
    schemas["Column"] = _column()
    schemas["Error"] = {
        "type": "object",
        "required": ["error", "code", "status"],
        "properties": {"error": {"type": "string"}, "code": {"type": "string"}, "status": {"type": "integer"}},
    }
    schemas["Tensors"] = {"type": "object", "description": "A request or response of the Open Inference Protocol."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ghostless", "version": package_version("ghostless"), "description": _ABOUT},
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "responses": {
                f"Error{status}": {"description": text, "content": _content("Error")}
                for status, text in _ERRORS.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _paths() -> dict[str, Any]:
    name, version = _parameter("name", "Model name."), _parameter("version", "Version number.")
    model = "/v2/models/{name}"
    paths: dict[str, Any] = {
        "/v1/predict": {
            "post": _call("predict", "Predictive distributions of candidates", "PredictResponse", "PredictRequest")
        },
        "/v1/models": {"get": _call("listModels", "Every model and its versions", "ListModelsResponse")},
        "/v1/models/{name}": {"get": _call("getModel", "The version in service in full", "Model", at=[name])},
        "/v1/models/{name}/versions/{version}": {
            "get": _call("getModelVersion", "One version in full", "Model", at=[name, version])
        },
        "/v1/outcomes": {
            "post": _call("recordOutcomes", "What really happened", "RecordOutcomesResponse", "RecordOutcomesRequest")
        },
        "/livez": {"get": _plain("livez", "Whether the server's processes show signs of life")},
        "/readyz": {"get": _plain("readyz", "Whether a worker has every model in service")},
        "/metrics": {"get": _plain("metrics", "Metrics of all workers for Prometheus")},
        "/v2": {"get": _call("v2Server", "Open Inference Protocol: server metadata", "Tensors")},
        "/v2/health/live": {"get": _call("v2Live", "Open Inference Protocol: liveness", "Tensors")},
        "/v2/health/ready": {"get": _call("v2Ready", "Open Inference Protocol: readiness", "Tensors")},
        "/v2/repository/index": {"post": _call("v2Index", "Models and versions, as Triton lists them", "Tensors")},
    }
    for suffix, at in (("", [name]), ("/versions/{version}", [name, version])):
        word = "Version" if suffix else "Model"
        paths[f"{model}{suffix}"] = {"get": _call(f"v2{word}", "Inputs and outputs of the graph", "Tensors", at=at)}
        paths[f"{model}{suffix}/ready"] = {"get": _call(f"v2{word}Ready", "Whether it is served", "Tensors", at=at)}
        paths[f"{model}{suffix}/config"] = {"get": _call(f"v2{word}Config", "As Triton's config", "Tensors", at=at)}
        paths[f"{model}{suffix}/infer"] = {
            "post": _call(f"v2{word}Infer", "Run the graph; tensors as JSON or binary", "Tensors", "Tensors", at=at)
        }
    return paths


def _call(identifier: str, summary: str, answer: str, body: str = "", at: list[dict[str, Any]] | None = None) -> Any:
    timeout = {
        "name": TIMEOUT_HEADER,
        "in": "header",
        "required": False,
        "schema": {"type": "number", "minimum": 1},
        "description": "Milliseconds after which the call ends with 504.",
    }
    operation: dict[str, Any] = {
        "operationId": identifier,
        "summary": summary,
        "parameters": [*(at or []), timeout],
        "responses": {"200": {"description": "The answer.", "content": _content(answer)}}
        | {status: {"$ref": f"#/components/responses/Error{status}"} for status in _ERRORS},
    }
    if body:
        operation["requestBody"] = {"required": True, "content": _content(body)}
    return operation


def _plain(identifier: str, summary: str) -> dict[str, Any]:
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    return {
        "operationId": identifier,
        "summary": summary,
        "security": [],
        "responses": {"200": {"description": "It is so.", **text}, "503": {"description": "It is not so.", **text}},
    }


def _parameter(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": about}


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _column() -> dict[str, Any]:
    values = [{"type": "number"}, {"type": "string"}]
    return {
        "description": "One feature: a value, a list with one value for each row, or the proto's typed form.",
        "anyOf": [
            *values,
            {"type": "array", "items": {"anyOf": values}},
            {
                "type": "object",
                "properties": {kind: {"$ref": f"#/components/schemas/{name}"} for kind, name in _KINDS},
                "additionalProperties": False,
            },
        ],
    }


_KINDS = (("int64s", "Int64List"), ("floats", "FloatList"), ("strings", "StringList"))


def _add_schema(descriptor: Any, schemas: dict[str, Any]) -> str:
    """Add the schemas of a message and of the messages in it; returns a reference to the message's schema."""
    name = descriptor.full_name.removeprefix("ghostless.v1.")
    if name not in schemas:
        schemas[name] = {}
        schemas[name] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                field.json_name if name == "Scoring.RiskAverse" else field.name: _field(field, schemas)
                for field in descriptor.fields
            },
        }
    return f"#/components/schemas/{name}"


def _field(field: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _single(field.message_type.fields_by_name["value"], schemas)}
    one = _single(field, schemas)
    return {"type": "array", "items": one} if field.is_repeated else one


def _single(field: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return {"$ref": _add_schema(field.message_type, schemas)}
    if field.type == FieldDescriptor.TYPE_ENUM:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    if field.type in _INTEGERS:
        return {"type": "integer"}
    kinds = {FieldDescriptor.TYPE_BOOL: "boolean", FieldDescriptor.TYPE_STRING: "string"}
    return {"type": kinds.get(field.type, "number")}
