"""Signs of life of the workers, in memory that the supervisor and its workers share.

A worker gives one several times a second from the thread that polls its sockets. A process that is stopped, or whose
polling hangs, gives none, although it is still there.
"""

import math
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

# How often a worker is asked for a sign.
INTERVAL_S = 0.25
# Without a sign from any worker for so long, the server is not alive: longer than any pause between restarts.
LIVENESS_S = 45.0
# When the last sign was given, by time.monotonic(), and whether the worker had run a request by then.
_PLACE = struct.Struct("=dd")


class Heartbeats:
    """A place for each worker and one for the supervisor; made before the workers are forked."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._memory = mmap.mmap(-1, _PLACE.size * (workers + 1))

    def give(self, worker: int, has_answered: bool = False) -> None:
        _PLACE.pack_into(self._memory, worker * _PLACE.size, time.monotonic(), has_answered)

    def give_supervisors(self) -> None:
        self.give(self._workers)

    def forget(self, worker: int) -> None:
        """Its process is another one now."""
        _PLACE.pack_into(self._memory, worker * _PLACE.size, 0.0, 0.0)

    def last(self, worker: int) -> float:
        """When it gave its last sign; 0.0 if it has given none."""
        return float(_PLACE.unpack_from(self._memory, worker * _PLACE.size)[0])

    def has_answered(self, worker: int) -> bool:
        return bool(_PLACE.unpack_from(self._memory, worker * _PLACE.size)[1])

    def ages_s(self) -> Sequence[float]:
        """Seconds since the last sign of each worker; infinite for those that have given none."""
        now = time.monotonic()
        lasts = [self.last(worker) for worker in range(self._workers)]
        return [now - last if last else math.inf for last in lasts]


class Liveness:
    """Whether restarting the server would help: no worker has given a sign for long, nor has the supervisor."""

    def __init__(self, heartbeats: Heartbeats, workers: int) -> None:
        self._heartbeats = heartbeats
        self._supervisor = workers
        self._began = time.monotonic()
        self._newest = 0.0

    def is_alive(self) -> bool:
        """True while the server starts, which takes as long as its models need."""
        now = time.monotonic()
        self._newest = max(self._newest, *(self._heartbeats.last(worker) for worker in range(self._supervisor)))
        supervisor = self._heartbeats.last(self._supervisor)
        if supervisor and now - supervisor > LIVENESS_S:
            return False
        return not self._newest or now - self._newest <= LIVENESS_S

    def report(self) -> str:
        lines = [
            f"worker {index}: " + ("no sign of life yet" if age == math.inf else f"sign of life {age:.1f} s ago")
            for index, age in enumerate(self._heartbeats.ages_s())
        ]
        return "\n".join([*lines, ""])


class Pulse:
    """In a worker: asks for signs of life from a thread of its own, and gives them when the poller gets to it."""

    def __init__(self, give: Callable[[bool], None], has_answered: Callable[[], bool]) -> None:
        self._give = give
        self._has_answered = has_answered
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._ask, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def on_asked(self, events: int) -> None:
        """On the thread that polls sockets."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)
        self._give(self._has_answered())

    def _ask(self) -> None:
        while True:
            os.eventfd_write(self.descriptor, 1)
            time.sleep(INTERVAL_S)
