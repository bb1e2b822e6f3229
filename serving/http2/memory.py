"""Memory that the clients of one process use: requests that are not whole, and answers that they have not read."""

from serving.http2.limits import Limits

# What a connection may always hold, also when others hold much.
_SMALL_BYTES = 1 << 18


class ClientMemory:
    """`held_bytes` is counted as it grows and shrinks, and now and then set to the sum over all connections: threads
    count without a lock, so that a count may be lost."""

    __slots__ = ("_share", "held_bytes", "limit")

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.client_memory_bytes
        self._share = self.limit // 2
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.held_bytes > self.limit

    def has_room(self, connection_bytes: int) -> bool:
        """Whether a connection that holds so much may hold more: half of all, and little where half of all is used."""
        return connection_bytes <= (self._share if self.held_bytes <= self._share else _SMALL_BYTES)
