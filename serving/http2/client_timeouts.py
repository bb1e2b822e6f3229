"""Timeouts for a client's actions: sending a preface, headers or body, reading responses, leaving.

Nothing here runs on the path of a request: `ServerProtocol.check_time` checks a few times a second, and a timeout
counts from the first check that saw the action.
"""

import random
from collections import deque
from collections.abc import Collection

from ghostless.contract import http2_frames as frames
from serving.http2.errors import Closing, ConnectionFault
from serving.http2.limits import Limits

_JITTER = 0.1


class ClientTimeouts:
    """Timeouts of one connection. Times are seconds of a monotonic clock."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._opened = now
        self._ages = now + limits.age_s * (1 - _JITTER * random.random()) if limits.age_s else None
        # The incomplete frame or header block, and since when it is incomplete.
        self._waits_for: tuple[bool, int] | None = None
        self._waits_since = now
        # Pairs of a time and the last stream opened by then.
        self._last_streams: deque[tuple[float, int]] = deque()
        # Streams whose response waits for the client, and since when.
        self._held_back: dict[int, float] = {}
        # Since when there is no call, and the last stream before.
        self._idle_since: tuple[float, int] | None = None
        self._left: tuple[float, Closing] | None = None

    def check_frame(self, now: float, is_begun: bool, waits_for: tuple[bool, int] | None) -> None:
        """Raises ConnectionFault if the preface, a header block or a frame takes too long."""
        limits = self._limits
        if not is_begun and now > self._opened + limits.preface_s:
            raise ConnectionFault("no HTTP/2 preface came in time", reason=Closing.PREFACE_DEADLINE)
        if waits_for != self._waits_for:
            self._waits_for, self._waits_since = waits_for, now
        elif waits_for is not None:
            allowed_s = limits.body_s if waits_for[0] else limits.header_s
            if now > self._waits_since + allowed_s:
                raise ConnectionFault(
                    f"a frame or header block took longer than {allowed_s:g} s",
                    frames.ENHANCE_YOUR_CALM,
                    Closing.HEADER_DEADLINE,
                )

    def late_streams(self, now: float, last_stream: int) -> int:
        """The last stream whose request should be complete by now."""
        marks, late = self._last_streams, 0
        if not marks or marks[-1][1] != last_stream:
            marks.append((now, last_stream))
        while marks and now > marks[0][0] + self._limits.body_s:
            late = marks.popleft()[1]
        if late and not marks:
            marks.append((now - self._limits.body_s, late))  # streams that are still open are checked again
        return late

    def unread_streams(self, now: float, held_back: Collection[int]) -> list[int]:
        """Streams whose responses have waited too long."""
        if not held_back and not self._held_back:
            return []
        self._held_back = {number: self._held_back.get(number, now) for number in held_back}
        return [number for number, since in self._held_back.items() if now > since + self._limits.unread_s]

    def check_leaving(self, now: float, last_stream: int, is_idle: bool) -> Closing | None:
        """The reason for asking the client to close the connection, returned once. Raises ConnectionFault if it was
        asked and did not."""
        if self._left is not None:
            since, reason = self._left
            if now > since + (self._limits.leave_idle_s if is_idle else self._limits.leave_s):
                raise ConnectionFault("the connection did not end in time", frames.NO_ERROR, reason)
            return None
        if not is_idle:
            self._idle_since = None
        elif self._idle_since is None or self._idle_since[1] != last_stream:
            self._idle_since = (now, last_stream)
        elif self._limits.idle_s and now > self._idle_since[0] + self._limits.idle_s:
            self._left = (now, Closing.IDLE)
            return Closing.IDLE
        if self._ages is not None and now > self._ages:
            self._left = (now, Closing.AGE)
            return Closing.AGE
        return None
