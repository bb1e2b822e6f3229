"""Responses and errors of HTTP: gRPC's statuses as HTTP statuses, with a JSON body that says what is wrong."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"
# By the names of gRPC's codes, as in google.rpc.Code's table for HTTP; nginx uses 499 for a client that disconnected.
STATUSES: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "ABORTED": 409,
    "LENGTH_REQUIRED": 411,
    "TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "MISDIRECTED": 421,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
# Headers of every response. Scripts and styles come only from this server, and its pages may not be embedded.
SECURITY_HEADERS: tuple[tuple[str, str], ...] = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
)


@dataclass(frozen=True)
class Response:
    body: bytes
    kind: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    is_cached: bool = False


class HttpError(Exception):
    """`code` is a name in STATUSES."""

    def __init__(self, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers

    def response(self) -> Response:
        status = STATUSES.get(self.code, 500)
        content = {"error": str(self), "code": self.code, "status": status}
        return Response(as_json(content), status=status, headers=self.headers)


@dataclass(frozen=True)
class Request:
    """`path` is decoded; `peer` is the client's address. Header names are lower-case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    peer: str = ""
    is_tls: bool = False
    parts: tuple[str, ...] = field(default=())

    def json_object(self) -> dict[str, Any]:
        return parse_object(self.body)


def as_json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def parse_object(text: bytes) -> dict[str, Any]:
    """Parses a JSON object; otherwise HttpError says what is wrong. NaN and Infinity are not JSON."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON; send finite numbers")

    try:
        content = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise HttpError("INVALID_ARGUMENT", f"the body is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise HttpError("INVALID_ARGUMENT", f"the body must be a JSON object, it is of type {kind}")
    return content
