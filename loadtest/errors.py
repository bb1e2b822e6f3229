"""Errors of a load test.

LoadTestError
├── PlanError          a plan asks for what can't be done
└── GeneratorError     the load can't be generated: no server there, a process of the generator's died
"""

from ghostless.contract.errors import GhostlessError


class LoadTestError(GhostlessError):
    """Root of all errors that load tests raise on purpose."""


class PlanError(LoadTestError):
    pass


class GeneratorError(LoadTestError):
    pass
