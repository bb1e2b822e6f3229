"""A budget for frames that carry no message.

HTTP/2 allows any number of control frames. Each costs the server more than its sender, and none leads to a call. So a
frame without a message spends from a budget, and a finished call refills it. Time also refills it slowly, for
connections without calls. A client that has spent its budget is disconnected. Ordinary clients stay near the full
budget.

The rate of calls that fail because of their requests is limited, too; so high that no client with a wrong model name
or token reaches it.
"""

from collections.abc import Callable

from ghostless.contract import http2_frames as frames
from serving.http2.errors import Closing, ConnectionFault
from serving.http2.limits import Limits


def no_time() -> float:
    """A clock that never advances."""
    return 0.0


class Budget:
    """`left` is the remaining budget. A finished call adds to it directly, because this is on the hot path."""

    __slots__ = (
        "_clock",
        "_faulty_left",
        "_faulty_per_s",
        "_faulty_since",
        "_per_s",
        "_refilled",
        "left",
        "most",
        "refill",
    )

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.left = self.most = limits.budget_frames
        self.refill = limits.refill_frames
        self._per_s = limits.refill_frames_per_s
        self._clock = clock
        self._refilled = clock()
        self._faulty_per_s = self._faulty_left = limits.faulty_calls_per_s
        self._faulty_since = self._refilled

    def spend(self, frames_without_message: int) -> None:
        self.left -= frames_without_message
        if self.left < 0:
            self._refill_by_time()
        if self.left < 0:
            raise ConnectionFault(
                "too many frames that carry no message", frames.ENHANCE_YOUR_CALM, reason=Closing.FLOOD
            )

    def count_faulty_call(self) -> None:
        """A call failed because of its request. If there are too many, the next frame ends the connection, because this
        thread can't."""
        self._faulty_left -= 1
        if self._faulty_left < 0:
            now = self._clock()
            earned = int((now - self._faulty_since) * self._faulty_per_s)
            self._faulty_left = min(self._faulty_per_s, self._faulty_left + earned)
            self._faulty_since = now
            if self._faulty_left < 0:
                self.left = -self.most

    def earn(self, earned: int) -> None:
        self.left = min(self.most, self.left + earned)

    def _refill_by_time(self) -> None:
        """Add the refill for the elapsed time. The clock is read only here, because it costs more than counting."""
        now = self._clock()
        self.earn(int((now - self._refilled) * self._per_s))
        self._refilled = now
