"""Slow writes on a background thread, which drops items rather than making callers wait."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

_TICK_S = 0.25

Item = TypeVar("Item")


class BackgroundWriter(Generic[Item]):
    """Passes items to `write`, one by one, on a background thread; at most `waiting` items are queued.

    `idle` is called on that thread a few times a second while there are no items.
    """

    def __init__(
        self, name: str, write: Callable[[Item], None], waiting: int, idle: Callable[[], None] = lambda: None
    ) -> None:
        self._name = name
        self._write = write
        self._idle = idle
        self._items: queue.Queue[Item] = queue.Queue(waiting)
        self._closing = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def offer(self, item: Item) -> bool:
        """Queue an item; returns False if it was dropped because the queue is full."""
        try:
            self._items.put_nowait(item)
        except queue.Full:
            return False
        return True

    def close(self, timeout_s: float) -> bool:
        """Write what is queued, for at most `timeout_s`; returns whether everything was written."""
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
                self._attempt(self._write, item)

    def _attempt(self, action: Callable[..., None], *arguments: Item) -> None:
        try:
            action(*arguments)
            self._failing = False
        except Exception:
            if not self._failing:
                _log.exception("cannot write the %s; the next write will try again", self._name)
            self._failing = True
