"""Counts closed connections by reason, and logs a few lines per minute, however many there are."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from serving.http2.errors import ORDINARY, Closing

_log = logging.getLogger(__name__)

# At most one line per reason in this time; the next one contains the number in between.
LOG_EVERY_S = 10.0


@dataclass(frozen=True)
class ConnectionObserver:
    """`on_closed` gets a number of closed connections and their reason; `on_state` is called regularly with the number
    of open connections and the memory that they use."""

    on_closed: Callable[[Closing, int], None] = lambda reason, number: None
    on_state: Callable[[int, int], None] = lambda connections, held_bytes: None


NOT_OBSERVED = ConnectionObserver()


class Closings:
    def __init__(
        self, observer: ConnectionObserver = NOT_OBSERVED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.observer = observer
        self._clock = clock
        self._logged: dict[Closing, float] = {}
        self._unlogged: dict[Closing, int] = {}

    def add(self, reason: Closing, peer: str, why: str = "", number: int = 1) -> None:
        """`peer` and `why` are texts of the server, never of a client."""
        self.observer.on_closed(reason, number)
        if reason in ORDINARY:
            _log.debug("connection of %s closed: %s", peer, reason.value)
            return
        now = self._clock()
        unlogged = self._unlogged.get(reason, 0)
        if now < self._logged.get(reason, -LOG_EVERY_S) + LOG_EVERY_S:
            self._unlogged[reason] = unlogged + number
            return
        self._logged[reason] = now
        self._unlogged[reason] = 0
        more = f" ({unlogged} more since the last such line)" if unlogged else ""
        _log.warning("connection of %s closed, reason %s%s%s", peer, reason.value, f": {why}" if why else "", more)
