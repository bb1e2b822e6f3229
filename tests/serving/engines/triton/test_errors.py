"""What an error of a call to Triton means."""

import grpc
import pytest

from ghostless.contract.errors import RequestError
from serving.engines.triton.errors import judge
from serving.errors import EngineError, ExpiredError, OverloadedError, UnavailableError


@pytest.mark.parametrize(
    ("code", "details", "error", "elsewhere", "blame"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses", UnavailableError, True, True),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", UnavailableError, True, True),
        (grpc.StatusCode.UNAVAILABLE, "[request id: x] Exceeds maximum queue size", OverloadedError, True, False),
        (grpc.StatusCode.UNAVAILABLE, "Request timeout expired", ExpiredError, False, False),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ExpiredError, False, False),
        (
            grpc.StatusCode.UNAVAILABLE,
            "Request for unknown model: 'demo' version 2 is not at ready state",
            UnavailableError,
            True,
            False,
        ),
        (grpc.StatusCode.INVALID_ARGUMENT, "unexpected shape for input 'hour'", EngineError, False, False),
        (grpc.StatusCode.INTERNAL, "running the model failed", EngineError, False, False),
    ],
)
def test_what_a_failed_call_means(
    code: grpc.StatusCode, details: str, error: type[RequestError], elsewhere: bool, blame: bool
) -> None:
    verdict = judge(code, details, "127.0.0.1:1")
    assert (type(verdict.error), verdict.elsewhere, verdict.blame) == (error, elsewhere, blame)
