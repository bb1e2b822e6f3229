"""Interprets a failed call to Triton: whether to retry, whether the endpoint failed, and the error for the client."""

from dataclasses import dataclass

import grpc

from ghostless.contract.errors import RequestError
from serving.errors import EngineError, ExpiredError, OverloadedError, UnavailableError

# Triton uses the code UNAVAILABLE for several errors, which only differ in their message.
_EXPIRED = "timeout expired"
_QUEUE_FULL = "maximum queue size"
_NOT_LOADED = ("not at ready state", "unknown model", "is not found", "not found")
_RETRY_AFTER_S = 0.05


@dataclass(frozen=True)
class Verdict:
    error: RequestError
    # Whether another Triton may succeed with the same request.
    elsewhere: bool = False
    # Whether this endpoint is down or failing, rather than busy or without the version.
    blame: bool = False
    # Whether the known state of the endpoint is out of date.
    stale: bool = False


def judge(code: grpc.StatusCode, details: str, address: str) -> Verdict:
    words = details.lower()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED or _EXPIRED in words:
        # Not counted as a failure of the endpoint: a client with a very short deadline must not open the circuit for
        # others. An endpoint that hangs fails its probes.
        return Verdict(ExpiredError("the deadline passed while Triton had the request"))
    if _QUEUE_FULL in words:
        return Verdict(
            OverloadedError("Triton's queue is full; try again later", retry_after_s=_RETRY_AFTER_S), elsewhere=True
        )
    unavailable = UnavailableError(f"Triton {address} failed: {details}")
    if any(phrase in words for phrase in _NOT_LOADED):
        return Verdict(unavailable, elsewhere=True, stale=True)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return Verdict(unavailable, elsewhere=True, blame=True)
    return Verdict(EngineError("Triton could not run the request; see the server's log"))
