"""The table that maps the server's errors to gRPC statuses."""

import math
from dataclasses import dataclass

import grpc

from ghostless.contract.errors import InvalidRequestError, RequestError
from serving.errors import (
    EngineError,
    ExpiredError,
    ForbiddenError,
    LimitedError,
    NonFiniteError,
    NotFoundError,
    OverloadedError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)

_CODES: dict[type[RequestError], grpc.StatusCode] = {
    InvalidRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    NotFoundError: grpc.StatusCode.NOT_FOUND,
    OverloadedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ExpiredError: grpc.StatusCode.DEADLINE_EXCEEDED,
    UnavailableError: grpc.StatusCode.UNAVAILABLE,
    UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    ForbiddenError: grpc.StatusCode.PERMISSION_DENIED,
    LimitedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UnsupportedError: grpc.StatusCode.UNIMPLEMENTED,
    EngineError: grpc.StatusCode.INTERNAL,
    NonFiniteError: grpc.StatusCode.INTERNAL,
}
RETRY_AFTER = "retry-after-ms"
# Obeyed by gRPC's own retry policies.
RETRY_PUSHBACK = "grpc-retry-pushback-ms"
NO_RETRY = "-1"
# Details are sent in a header; a long one would be dropped together with the status.
_MAX_DETAILS = 1000


@dataclass(frozen=True)
class Status:
    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, str], ...] = ()


def status_of(error: RequestError, left_s: float = math.inf) -> Status:
    """The status of an error. `left_s`: seconds until the client's deadline. A retry that could not begin before the
    deadline is forbidden, so that the client learns immediately that the server is full."""
    hint: tuple[tuple[str, str], ...] = ()
    if isinstance(error, OverloadedError | LimitedError):
        milliseconds = str(max(1, math.ceil(error.retry_after_s * 1000)))
        pushback = milliseconds if error.retry_after_s < left_s else NO_RETRY
        hint = ((RETRY_AFTER, milliseconds), (RETRY_PUSHBACK, pushback))
    return Status(_CODES[type(error)], shortened(str(error)), hint)


def shortened(details: str) -> str:
    return details if len(details) <= _MAX_DETAILS else details[:_MAX_DETAILS] + "..."


def abort(context: grpc.ServicerContext, error: RequestError) -> None:
    """End a call on a handler thread with the error's status; it never returns."""
    status = status_of(error)
    context.set_trailing_metadata(status.trailing_metadata)
    context.abort(status.code, status.details)
