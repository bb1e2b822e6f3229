"""What can go wrong in export.

ExportError
├── OptionError           an export option is wrong or does not fit the model
├── UnsupportedError      the model has a form that has no served graph
└── VerificationError     the graph does not answer as the model does; nothing was written
"""


class ExportError(Exception):
    """Root of all errors that export raises on purpose."""


class OptionError(ExportError):
    pass


class UnsupportedError(ExportError):
    pass


class VerificationError(ExportError):
    pass
