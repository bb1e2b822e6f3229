"""Writing that may be slow, on a thread of its own, which drops rather than lets anybody wait."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

_TICK_S = 0.25
# How often a failure that goes on is logged.
_REPORT_S = 60.0

Item = TypeVar("Item")


class BackgroundWriter(Generic[Item]):
    """Gives items to `write`, one after the other, on one thread; at most `waiting` of them wait for it.

    `idle` is called on that thread while nothing comes, a few times a second; `on_failure` whenever one of both raised.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Item], None],
        waiting: int,
        idle: Callable[[], None] = lambda: None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._write = write
        self._idle = idle
        self._items: queue.Queue[Item] = queue.Queue(waiting)
        self._closing = threading.Event()
        self._on_failure = on_failure
        # Since the last item that was written.
        self._failures = 0
        self._reported = -math.inf
        self._is_told = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def offer(self, item: Item) -> bool:
        """False if it was dropped, because as many wait already as may."""
        try:
            self._items.put_nowait(item)
        except queue.Full:
            return False
        return True

    def close(self, timeout_s: float) -> bool:
        """What waits is still written, if it takes no longer than this; whether it was."""
        self._closing.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not (self._closing.is_set() and self._items.empty()):
            try:
                item = self._items.get(timeout=_TICK_S)
            except queue.Empty:
                self._attempt(self._idle)
            else:
                if self._attempt(self._write, item):
                    self._recovered()

    def _attempt(self, action: Callable[..., None], *arguments: Item) -> bool:
        try:
            action(*arguments)
        except Exception as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: Exception) -> None:
        """At most one line a minute: the disk that is full may hold this log too."""
        self._on_failure()
        self._failures += 1
        now = time.monotonic()
        if now >= self._reported + _REPORT_S:
            self._reported = now
            self._is_told = True
            # What the system refuses needs no traceback; anything else is a fault of the program.
            why = (isinstance(error, OSError) and error.strerror) or error
            _log.error(
                "cannot write the %s: %s (%d failures); the next write will try again",
                self._name,
                why,
                self._failures,
                exc_info=None if isinstance(error, OSError) else error,
            )

    def _recovered(self) -> None:
        if self._is_told:
            _log.warning("the %s is written again, after %d failures", self._name, self._failures)
        self._failures, self._is_told = 0, False
