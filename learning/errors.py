"""Errors of learning, except wrong options (ghostless.contract.errors.ConfigError).

LearningError
├── DataError          a data file or schema is invalid; the message names file and column
├── RankerError        a user-supplied ranker can't be served; the message names the node and what to change
└── CheckpointError    a checkpoint is damaged, not from Ghostless, or does not match the data
"""

from ghostless.contract.errors import GhostlessError


class LearningError(GhostlessError):
    """Root of all errors that learning raises on purpose."""


class DataError(LearningError):
    pass


class RankerError(LearningError):
    pass


class CheckpointError(LearningError):
    pass
