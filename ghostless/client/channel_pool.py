"""The connections of one client."""

import itertools
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ghostless.contract.errors import ConfigError

Channel = TypeVar("Channel")

# Upper limit on the number of workers that a server reports, to protect the client's file descriptors.
MOST_LEARNT = 256


class ChannelPool(Generic[Channel]):
    """Channels that calls use in turn.

    gRPC sends all calls of a channel over one connection to each address, and a connection belongs to one worker of a
    server, so a single channel uses only one of N workers. With `size` None, the pool starts with one channel and grows
    to the number of workers once the server has reported it. Safe to share between threads.
    """

    def __init__(self, open_channel: Callable[[], Channel], size: int | None) -> None:
        if size is not None and size < 1:
            raise ConfigError(f"connections is {size}; expected at least 1, or None for one per worker of the server")
        self._open_channel = open_channel
        self._channels = tuple(open_channel() for _ in range(size or 1))
        self._turns = itertools.count()
        self._lock = threading.Lock()
        self._must_ask = size is None
        self._closed = False

    def take(self) -> Channel:
        """The next channel."""
        channels = self._channels
        return channels[next(self._turns) % len(channels)]

    def first_to_ask(self) -> bool:
        """True for the first caller, if `size` was None: this caller must ask the server for its number of workers."""
        if not self._must_ask:
            return False
        with self._lock:
            is_first, self._must_ask = self._must_ask, False
        return is_first

    def grow(self, workers: int) -> None:
        """Open a channel for each of the server's workers; `workers` is 0 if the server does not report it."""
        with self._lock:
            if not self._closed:
                missing = min(workers, MOST_LEARNT) - len(self._channels)
                self._channels += tuple(self._open_channel() for _ in range(missing))

    def close(self) -> tuple[Channel, ...]:
        """Stop opening channels; returns the open ones, which the caller must close."""
        with self._lock:
            self._closed = True
            return self._channels
