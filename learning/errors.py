"""What can go wrong in learning.

LearningError
├── DataError          a data file or schema is not as it must be: names file and column
├── ConfigError        a training option is wrong or contradicts another
└── CheckpointError    a checkpoint is damaged, foreign or does not fit the data
"""


class LearningError(Exception):
    """Root of all errors that learning raises on purpose."""


class DataError(LearningError):
    pass


class ConfigError(LearningError):
    pass


class CheckpointError(LearningError):
    pass
