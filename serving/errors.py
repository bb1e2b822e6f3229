"""What can go wrong in serving.

ServingError
├── ConfigError                a flag, config file or environment variable is wrong
├── InvalidModelError          a model file can't be served: damaged, foreign, without metadata
├── RepositoryError            a model repository, model or version is not as it must be
└── RequestError               a request can't be answered; mapped to a gRPC code in statuses
    ├── InvalidRequestError    INVALID_ARGUMENT
    ├── NotFoundError          NOT_FOUND
    ├── OverloadedError        RESOURCE_EXHAUSTED, with a retry hint
    ├── ExpiredError           DEADLINE_EXCEEDED
    ├── UnavailableError       UNAVAILABLE
    ├── UnsupportedError       UNIMPLEMENTED: this server was started without it
    └── EngineError            INTERNAL: the server's own fault, logged, never a client's mistake
        └── NonFiniteError     the model returned NaN or infinity
"""


class ServingError(Exception):
    """Root of all errors that serving raises on purpose."""


class ConfigError(ServingError):
    pass


class InvalidModelError(ServingError):
    pass


class RepositoryError(ServingError):
    pass


class RequestError(ServingError):
    pass


class InvalidRequestError(RequestError):
    pass


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


class UnsupportedError(RequestError):
    pass


class EngineError(RequestError):
    pass


class NonFiniteError(EngineError):
    pass
