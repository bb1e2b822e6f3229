"""Errors of export.

ExportError
├── OptionError           an export option is wrong or does not fit the model
├── UnsupportedModelError the model has a form that has no served graph
└── VerificationError     the graph does not answer as the model does; nothing was written
"""

from ghostless.contract.errors import GhostlessError


class ExportError(GhostlessError):
    """Root of all errors that export raises on purpose."""


class OptionError(ExportError):
    pass


class UnsupportedModelError(ExportError):
    pass


class VerificationError(ExportError):
    pass
