"""Log lines that clients can cause: at most one per interval, with the number of those left out."""

import logging
import threading
import time


class RareLog:
    def __init__(self, log: logging.Logger, every_s: float) -> None:
        self._log = log
        self._every_s = every_s
        self._lock = threading.Lock()
        self._next = 0.0
        self._left_out = 0

    def warning(self, message: str, *arguments: object) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                self._left_out += 1
                return
            self._next = now + self._every_s
            left_out, self._left_out = self._left_out, 0
        if left_out:
            message += f" ({left_out} more like this since the last line)"
        self._log.warning(message, *arguments)
