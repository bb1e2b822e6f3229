"""When a failed call is tried again, and after how long. No clock, no sleep: both clients share it."""

import random
from dataclasses import dataclass

import grpc

from ghostless.client.errors import CallError


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with full jitter: retry i = 0, 1.. waits U(0, min(max, initial multiplier^i))."""

    max_attempts: int = 4
    initial_backoff_s: float = 0.01
    multiplier: float = 2.0
    max_backoff_s: float = 1.0

    def backoff_s(self, failures: int, jitter: float) -> float:
        """The wait after the `failures`-th failure in a row (from 1), `jitter` in [0, 1)."""
        return min(self.max_backoff_s, self.initial_backoff_s * self.multiplier ** (failures - 1)) * jitter


def is_retryable(error: CallError) -> bool:
    """Whether the same request may succeed later.

    RESOURCE_EXHAUSTED without a hint is gRPC's own answer to a message that is too large: it will never fit.
    """
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return error.retry_after_s is not None
    return error.code is grpc.StatusCode.UNAVAILABLE


class Attempts:
    """The attempts of one call within its deadline.

    `delay_after` raises the error where no further attempt can help: the caller then gets the cause, not a
    DEADLINE_EXCEEDED that hides it.
    """

    def __init__(self, policy: RetryPolicy, timeout_s: float, now_s: float) -> None:
        self._policy = policy
        self._deadline_s = now_s + timeout_s
        self.made = 1

    def remaining_s(self, now_s: float) -> float:
        return max(self._deadline_s - now_s, 0.0)

    def delay_after(self, error: CallError, now_s: float) -> float:
        """Seconds to wait before the next attempt; raises `error` where there is none."""
        if self.made >= self._policy.max_attempts or not is_retryable(error):
            raise error
        jitter = random.random()
        # Never earlier than the server's own estimate, and spread so that clients don't return all at once.
        delay_s = (error.retry_after_s or 0.0) + self._policy.backoff_s(self.made, jitter)
        if delay_s >= self.remaining_s(now_s):
            raise error
        self.made += 1
        return delay_s
