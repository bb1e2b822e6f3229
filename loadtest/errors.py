"""Errors of a load test.

LoadTestError
├── PlanError          the plan of a load is invalid
└── GeneratorError     the load can't be generated: there is no server, or a process of the generator died
"""

from ghostless.contract.errors import GhostlessError


class LoadTestError(GhostlessError):
    """Root of all errors that load tests raise on purpose."""


class PlanError(LoadTestError):
    pass


class GeneratorError(LoadTestError):
    pass
