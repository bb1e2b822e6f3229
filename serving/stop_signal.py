"""Waiting for SIGTERM and SIGINT."""

import os
import select
import signal


class StopSignal:
    """Catches both signals from now on, in the main thread.

    It uses a file descriptor instead of a threading.Event: if a signal arrives while the main thread is inside the
    event, its handler runs on the same thread and would wait forever for a lock that this thread holds.
    """

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.eventfd_write(self._descriptor, 1))

    def wait(self, timeout_s: float) -> bool:
        """Wait for a signal, at most `timeout_s`; returns whether one has arrived."""
        readable, _, _ = select.select([self._descriptor], [], [], timeout_s)
        return bool(readable)
