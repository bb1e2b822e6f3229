"""SIGTERM and SIGINT as something to wait for."""

import os
import select
import signal


class StopSignal:
    """Catches both from now on, in the main thread.

    A threading.Event would do until a signal comes while the main thread is inside that event: its handler, on the
    same thread, then waits for a lock that this thread holds, for ever. A descriptor has no lock.
    """

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.eventfd_write(self._descriptor, 1))

    def wait(self, timeout_s: float) -> bool:
        """Whether one has come, by then."""
        readable, _, _ = select.select([self._descriptor], [], [], timeout_s)
        return bool(readable)
