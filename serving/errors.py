"""Errors of requests: the server's branch of ghostless.contract.errors.

RequestError                   mapped to a gRPC code in serving.transport.statuses
├── InvalidRequestError        INVALID_ARGUMENT (ghostless.contract.errors)
├── NotFoundError              NOT_FOUND
├── OverloadedError            RESOURCE_EXHAUSTED, with a retry delay
├── ExpiredError               DEADLINE_EXCEEDED
├── UnavailableError           UNAVAILABLE
├── UnauthenticatedError       UNAUTHENTICATED: no valid credentials
├── ForbiddenError             PERMISSION_DENIED: not allowed for this identity
├── LimitedError               RESOURCE_EXHAUSTED, with a retry delay: a limit of this identity
├── UnsupportedError           UNIMPLEMENTED: this server was started without the feature
└── EngineError                INTERNAL: an error of the server, which is logged; not caused by the client
    └── NonFiniteError         the model returned NaN or infinity
"""

from ghostless.contract.errors import RequestError


class NotFoundError(RequestError):
    pass


class OverloadedError(RequestError):
    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ExpiredError(RequestError):
    pass


class UnavailableError(RequestError):
    pass


class UnauthenticatedError(RequestError):
    pass


class ForbiddenError(RequestError):
    pass


class LimitedError(RequestError):
    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnsupportedError(RequestError):
    pass


class EngineError(RequestError):
    pass


class NonFiniteError(EngineError):
    pass
