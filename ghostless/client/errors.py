"""The errors that a call can raise.

GhostlessError
├── InvalidRequestError        raised before anything is sent: a column can't be encoded
└── CallError                  the call failed, at the server or on the way to it; has the gRPC code
    ├── RejectedError          INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, UNIMPLEMENTED: fix the request
    ├── DeniedError            UNAUTHENTICATED, PERMISSION_DENIED
    ├── BusyError              RESOURCE_EXHAUSTED; `retry_after_s` if the server gave a retry delay
    ├── UnreachableError       UNAVAILABLE
    ├── DeadlineError          DEADLINE_EXCEEDED
    └── MalformedAnswerError   INTERNAL: the response is not a valid Ghostless message
"""

from collections.abc import Iterable
from typing import cast

import grpc

from ghostless.contract.errors import GhostlessError

RETRY_HINT = "retry-after-ms"


class CallError(GhostlessError):
    """A call failed with the gRPC status `code`, after the retries that the policy allows.

    `retry_after_s` is the server's estimate of when it can accept the request, if it gave one.
    """

    def __init__(self, code: grpc.StatusCode, details: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details
        self.retry_after_s = retry_after_s


class RejectedError(CallError):
    """INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE or UNIMPLEMENTED: the request must change."""


class DeniedError(CallError):
    """UNAUTHENTICATED or PERMISSION_DENIED: the credentials are missing, wrong or not sufficient."""


class BusyError(CallError):
    """RESOURCE_EXHAUSTED: the server's queue is full (then `retry_after_s` is set) or the message is too large."""


class UnreachableError(CallError):
    """UNAVAILABLE: no server could be reached, or it is stopping."""


class DeadlineError(CallError):
    """DEADLINE_EXCEEDED: there was no response within `timeout_s`, or within the server's own limit."""


class MalformedAnswerError(CallError):
    """The response is not a valid Ghostless message."""

    def __init__(self, details: str) -> None:
        super().__init__(grpc.StatusCode.INTERNAL, details)


_CLASSES: dict[grpc.StatusCode, type[CallError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: RejectedError,
    grpc.StatusCode.NOT_FOUND: RejectedError,
    grpc.StatusCode.OUT_OF_RANGE: RejectedError,
    grpc.StatusCode.UNIMPLEMENTED: RejectedError,
    grpc.StatusCode.UNAUTHENTICATED: DeniedError,
    grpc.StatusCode.PERMISSION_DENIED: DeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: BusyError,
    grpc.StatusCode.UNAVAILABLE: UnreachableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
}


def call_error(failure: grpc.RpcError) -> CallError:
    """The typed error of a failed call, blocking or asyncio."""
    code = failure.code()
    return _CLASSES.get(code, CallError)(code, failure.details() or "", _retry_hint_s(failure))


def _retry_hint_s(failure: grpc.RpcError) -> float | None:
    # The stubs have no common type for the metadata of blocking and asyncio calls; both can be iterated as pairs.
    pairs = cast(Iterable[tuple[str, str | bytes]], failure.trailing_metadata() or ())
    for key, value in pairs:
        if key == RETRY_HINT:
            try:
                return max(float(value), 0.0) / 1000
            except ValueError:
                return None
    return None
