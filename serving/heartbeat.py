"""Heartbeats of the workers, in memory that the supervisor and its workers share.

A worker writes a heartbeat several times a second, on the thread that polls its sockets. A process that is stopped, or
whose polling hangs, writes none, although it still exists.
"""

import math
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

# Interval at which a worker requests a heartbeat from its polling thread.
INTERVAL_S = 0.25
# Without a heartbeat of any worker for this long, the server is not alive. Longer than any delay between restarts.
LIVENESS_S = 45.0
# Time of the last heartbeat by time.monotonic(), and whether the worker had run a request by then.
_PLACE = struct.Struct("=dd")


class Heartbeats:
    """One slot for each worker and one for the supervisor; created before the workers are forked."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._memory = mmap.mmap(-1, _PLACE.size * (workers + 1))

    def give(self, worker: int, has_answered: bool = False) -> None:
        _PLACE.pack_into(self._memory, worker * _PLACE.size, time.monotonic(), has_answered)

    def give_supervisors(self) -> None:
        self.give(self._workers)

    def forget(self, worker: int) -> None:
        """Reset the slot of a worker whose process was replaced."""
        _PLACE.pack_into(self._memory, worker * _PLACE.size, 0.0, 0.0)

    def last(self, worker: int) -> float:
        """Time of the worker's last heartbeat; 0.0 if there was none."""
        return float(_PLACE.unpack_from(self._memory, worker * _PLACE.size)[0])

    def has_answered(self, worker: int) -> bool:
        return bool(_PLACE.unpack_from(self._memory, worker * _PLACE.size)[1])

    def ages_s(self) -> Sequence[float]:
        """Seconds since the last heartbeat of each worker; infinite if there was none."""
        now = time.monotonic()
        lasts = [self.last(worker) for worker in range(self._workers)]
        return [now - last if last else math.inf for last in lasts]


class Liveness:
    """Whether the server is alive. If neither the workers nor the supervisor had a heartbeat for long, a restart would
    help."""

    def __init__(self, heartbeats: Heartbeats, workers: int) -> None:
        self._heartbeats = heartbeats
        self._supervisor = workers
        self._began = time.monotonic()
        self._newest = 0.0

    def is_alive(self) -> bool:
        """Also true while the server starts, which may take long if its models are large."""
        now = time.monotonic()
        self._newest = max(self._newest, *(self._heartbeats.last(worker) for worker in range(self._supervisor)))
        supervisor = self._heartbeats.last(self._supervisor)
        if supervisor and now - supervisor > LIVENESS_S:
            return False
        return not self._newest or now - self._newest <= LIVENESS_S

    def report(self) -> str:
        lines = [
            f"worker {index}: " + ("no heartbeat yet" if age == math.inf else f"last heartbeat {age:.1f} s ago")
            for index, age in enumerate(self._heartbeats.ages_s())
        ]
        return "\n".join([*lines, ""])


class Pulse:
    """Writes the heartbeats of a worker: a background thread requests them, and the polling thread writes them."""

    def __init__(self, give: Callable[[bool], None], has_answered: Callable[[], bool]) -> None:
        self._give = give
        self._has_answered = has_answered
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._ask, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def on_asked(self, events: int) -> None:
        """Called on the thread that polls sockets."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)
        self._give(self._has_answered())

    def _ask(self) -> None:
        while True:
            os.eventfd_write(self.descriptor, 1)
            time.sleep(INTERVAL_S)
