"""Waiting for other threads and processes."""

import time
from collections.abc import Callable

TIMEOUT_S = 20.0


def eventually(condition: Callable[[], object], what: str = "the condition", timeout_s: float = TIMEOUT_S) -> None:
    """Return once `condition` is true; fail with `what` if that takes longer than `timeout_s`.

    The timeout is generous: only a failing test waits that long, and a busy machine must not make a test fail.
    """
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"{what} did not come true within {timeout_s:g} s"
        time.sleep(0.005)
