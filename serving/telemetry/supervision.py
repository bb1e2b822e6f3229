"""Metrics of the supervisor. It must stay free of numpy, which would start threads in a process that forks."""

from pathlib import Path
from typing import Literal

from serving.telemetry.help_texts import HELP, NAMESPACE
from serving.telemetry.values import Family, ValueMemory

RestartReason = Literal["exited", "killed", "hung"]
_REASONS: tuple[RestartReason, ...] = ("exited", "killed", "hung")
_RESTARTS = "worker_restarts"


class SupervisorMetrics:
    """`directory`: where the server's processes keep their values; None if metrics are off."""

    def __init__(self, directory: Path | None) -> None:
        memory = ValueMemory(directory)
        self.family = Family(f"{NAMESPACE}_{_RESTARTS}", "counter", HELP[_RESTARTS], ("reason",))
        memory.add_family(self.family)
        # From 0, so that a rate sees the first one.
        self._restarts = {reason: memory.add_series(self.family, (reason,)) for reason in _REASONS}

    def restarted(self, reason: RestartReason) -> None:
        self._restarts[reason][0] += 1
