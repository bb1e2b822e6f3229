"""What a failed call to Triton means: try elsewhere, blame the endpoint, and what to tell the client at last."""

from dataclasses import dataclass

import grpc

from ghostless.contract.errors import RequestError
from serving.errors import EngineError, ExpiredError, OverloadedError, UnavailableError

# Triton has one code, UNAVAILABLE, for several ends; it tells them apart in words.
_EXPIRED = "timeout expired"
_QUEUE_FULL = "maximum queue size"
_NOT_LOADED = ("not at ready state", "unknown model", "is not found", "not found")
_RETRY_AFTER_S = 0.05


@dataclass(frozen=True)
class Verdict:
    error: RequestError
    # Whether another Triton may answer the same request.
    elsewhere: bool = False
    # Whether this one is gone or failing, rather than busy or asked for what it has not.
    blame: bool = False
    # Whether what is known of it is out of date.
    stale: bool = False


def judge(code: grpc.StatusCode, details: str, address: str) -> Verdict:
    words = details.lower()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED or _EXPIRED in words:
        # No blame: a client with too short a deadline must not cost the others an endpoint. One that hangs fails its
        # probes.
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
    return Verdict(EngineError("Triton could not run the request; the server's log says why"))
