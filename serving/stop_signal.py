"""SIGTERM and SIGINT as something to wait for, and what SIGHUP does.

SIGHUP from a terminal that closes stops the server like SIGTERM. A server without a terminal (a service, a container)
survives it: it has nothing to reload, since it watches the repository and opens its logs anew by itself.
"""

import logging
import os
import select
import signal
import sys
from collections.abc import Callable

_log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop(stop: Callable[[], None], on_hang_up: Callable[[], None]) -> None:
    """From now on, in the main thread. `on_hang_up` is called for a SIGHUP that is to be survived."""
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: stop())
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        act = stop if _has_terminal() else on_hang_up
        signal.signal(signal.SIGHUP, lambda *_: act())


def exit_on_stop() -> None:
    """Until a server installs its own handlers: end, but through every `finally`, so that nothing is left behind."""
    on_stop(lambda: sys.exit(128 + signal.SIGTERM), lambda: None)


def log_hang_up() -> None:
    _log.warning("SIGHUP: nothing to reload; the repository and the log files are watched. SIGTERM stops the server")


class StopSignal:
    """Catches them from now on, in the main thread.

    A threading.Event would do until a signal comes while the main thread is inside that event: its handler, on the
    same thread, then waits for a lock that this thread holds, for ever. A descriptor has no lock.
    """

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._hung_up = False
        on_stop(lambda: os.eventfd_write(self._descriptor, 1), self._hang_up)

    def wait(self, timeout_s: float) -> bool:
        """Whether one has come, by then."""
        readable, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if self._hung_up:
            self._hung_up = False
            log_hang_up()
        return bool(readable)

    def _hang_up(self) -> None:
        # Logged later: the main thread may be writing a log message right now.
        self._hung_up = True


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
