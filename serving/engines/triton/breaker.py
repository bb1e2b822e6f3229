"""The circuit breaker of one endpoint: after consecutive failures it is skipped for a while, then tried with one call.

closed --(failures in a row)--> open --(time passes)--> half-open --(the call succeeds)--> closed
                                  ^                         |
                                  +----(the call fails, twice the time)
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Circuit(Enum):
    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclass(frozen=True)
class BreakerLimits:
    failures: int = 3
    first_open_s: float = 0.25
    longest_open_s: float = 5.0


DEFAULT_LIMITS = BreakerLimits()


class CircuitBreaker:
    def __init__(self, limits: BreakerLimits = DEFAULT_LIMITS, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._open_s = limits.first_open_s
        self._retry_at = 0.0
        self._circuit = Circuit.CLOSED

    @property
    def circuit(self) -> Circuit:
        return self._circuit

    def may_pass(self) -> bool:
        """Whether a call would be allowed now, without claiming it."""
        return self._circuit is Circuit.CLOSED or self._clock() >= self._retry_at

    def claim(self) -> bool:
        """Allow one call; returns whether it may be made. While the circuit is not closed, only one probe is allowed at
        a time."""
        with self._lock:
            if self._circuit is Circuit.CLOSED:
                return True
            now = self._clock()
            if now < self._retry_at:
                return False
            self._circuit = Circuit.HALF_OPEN
            # If the probe never ends, another one is allowed after the same time.
            self._retry_at = now + self._open_s
            return True

    def succeeded(self) -> None:
        if self._failures == 0 and self._circuit is Circuit.CLOSED:
            return
        with self._lock:
            self._failures = 0
            self._open_s = self._limits.first_open_s
            self._circuit = Circuit.CLOSED

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            if self._circuit is Circuit.HALF_OPEN:
                self._open_s = min(2 * self._open_s, self._limits.longest_open_s)
            elif self._circuit is Circuit.OPEN or self._failures < self._limits.failures:
                return
            self._circuit = Circuit.OPEN
            self._retry_at = self._clock() + self._open_s
