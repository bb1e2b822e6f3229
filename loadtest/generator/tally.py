"""Counts of one generator process in one interval; the parent process adds them up."""

from array import array
from collections import Counter
from dataclasses import dataclass, field


def _seconds() -> "array[float]":
    return array("d")


@dataclass
class Tally:
    """`ok`, `rows`, `shed` and `failed` count all responses that arrived in the interval; the rest counts only requests
    that were due after the warm-up. Codes are gRPC's numbers. Latencies are in seconds, unrounded."""

    interval: int
    due: int = 0
    ok: int = 0
    shed: int = 0
    failed: int = 0
    rows: int = 0
    sent: int = 0
    counted_ok: int = 0
    counted_rows: int = 0
    answer_bytes: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    versions: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    latency_s: "array[float]" = field(default_factory=_seconds)
    service_s: "array[float]" = field(default_factory=_seconds)
    shed_s: "array[float]" = field(default_factory=_seconds)
    late_s: "array[float]" = field(default_factory=_seconds)


@dataclass(frozen=True)
class Ended:
    """A process has finished: when it stopped sending, in seconds after the warm-up, and its CPU time."""

    stopped_s: float
    cpu_s: float


@dataclass(frozen=True)
class Failed:
    """A process had to stop because of an error."""

    reason: str
