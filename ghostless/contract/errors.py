"""The root of all errors that Ghostless raises on purpose, and the errors that several packages share.

GhostlessError
├── ConfigError                a flag, option, config file or environment variable is wrong
├── InvalidModelError          a model file can't be served: damaged, not from Ghostless, or without metadata
├── RepositoryError            a model repository, model or version is missing or invalid
├── RequestError               a request can't be answered (serving.errors has the rest of this branch)
│   └── InvalidRequestError    the request itself is wrong: fix it before sending it again
├── CallError                  ghostless.client.errors: a call failed, at the server or on the way to it
├── LearningError              learning.errors
├── ExportError                export.errors
└── LoadTestError              loadtest.errors

A command that ends with one of these prints its message on one line and exits with status 1.
"""


class GhostlessError(Exception):
    """Root of all errors that Ghostless raises on purpose."""


class ConfigError(GhostlessError):
    pass


class InvalidModelError(GhostlessError):
    pass


class RepositoryError(GhostlessError):
    pass


class RequestError(GhostlessError):
    pass


class InvalidRequestError(RequestError):
    pass
