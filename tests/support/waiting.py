"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable

TIMEOUT_S = 20.0


def eventually(condition: Callable[[], object], what: str = "the condition", timeout_s: float = TIMEOUT_S) -> None:
    """Return once `condition` holds; fail with `what` when it does not within `timeout_s`.

    The bound is generous: it is only waited out by a test that fails, and a busy machine must not make one fail.
    """
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"{what} did not come true within {timeout_s:g} s"
        time.sleep(0.005)
