"""What can go wrong in a call.

GhostlessError
├── InvalidRequestError        raised before anything is sent: a column that can't be encoded
└── CallError                  the server, or the way to it, refused; carries the gRPC code
    ├── RejectedError          INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, UNIMPLEMENTED: fix the request
    ├── DeniedError            UNAUTHENTICATED, PERMISSION_DENIED
    ├── BusyError              RESOURCE_EXHAUSTED; `retry_after_s` where the server gave a hint
    ├── UnreachableError       UNAVAILABLE
    ├── DeadlineError          DEADLINE_EXCEEDED
    └── MalformedAnswerError   INTERNAL: the answer is not a Ghostless one
"""

from collections.abc import Iterable
from typing import cast

import grpc

from ghostless.contract.errors import GhostlessError

RETRY_HINT = "retry-after-ms"


class CallError(GhostlessError):
    """A call failed with `code`; `attempts` were made."""

    def __init__(
        self, code: grpc.StatusCode, details: str, retry_after_s: float | None = None, attempts: int = 1
    ) -> None:
        tries = f" (after {attempts} attempts)" if attempts > 1 else ""
        super().__init__(f"{code.name}: {details}{tries}")
        self.code = code
        self.details = details
        self.retry_after_s = retry_after_s
        self.attempts = attempts


class RejectedError(CallError):
    pass


class DeniedError(CallError):
    pass


class BusyError(CallError):
    pass


class UnreachableError(CallError):
    pass


class DeadlineError(CallError):
    pass


class MalformedAnswerError(CallError):
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


def call_error(failure: grpc.RpcError, attempts: int) -> CallError:
    """The typed error of a failed call, blocking or asyncio."""
    code = failure.code()
    return _CLASSES.get(code, CallError)(code, failure.details() or "", _retry_hint_s(failure), attempts)


def _retry_hint_s(failure: grpc.RpcError) -> float | None:
    # The stubs name no common type for the metadata of the two stacks; both iterate over pairs.
    pairs = cast(Iterable[tuple[str, str | bytes]], failure.trailing_metadata() or ())
    for key, value in pairs:
        if key == RETRY_HINT:
            try:
                return max(float(value), 0.0) / 1000
            except ValueError:
                return None
    return None
