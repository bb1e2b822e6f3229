"""Memory used for the clients of one process: incomplete requests, and responses that they have not read."""

from serving.http2.limits import Limits

# Memory that a connection may always use, even if others use much.
_SMALL_BYTES = 1 << 18


class ClientMemory:
    """`held_bytes` is updated incrementally and periodically reset to the sum over all connections, because threads
    count without a lock and an update may be lost."""

    __slots__ = ("_share", "held_bytes", "limit")

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.client_memory_bytes
        self._share = self.limit // 2
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.held_bytes > self.limit

    def has_room(self, connection_bytes: int) -> bool:
        """Whether a connection that uses `connection_bytes` may use more: up to half of the memory, or only a little if
        half of the memory is in use."""
        return connection_bytes <= (self._share if self.held_bytes <= self._share else _SMALL_BYTES)
