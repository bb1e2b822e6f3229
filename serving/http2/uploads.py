"""Incomplete requests of one message; their size is limited individually and for the whole connection."""

from serving.http2.limits import Limits
from serving.http2.memory import ClientMemory
from serving.http2.states import StreamState
from serving.http2.stream import MessageTooLargeError, Stream


class Uploads:
    def __init__(self, limits: Limits, memory: ClientMemory) -> None:
        self._limits = limits
        self._memory = memory
        self.held_bytes = 0

    def take(self, stream: Stream, payload: memoryview) -> None:
        """Add a piece of a request, except the last. Raises MessageTooLargeError as soon as its length is known; the
        request is then discarded."""
        stream.take(payload)
        self._hold(len(payload))
        try:
            stream.check_size(self._limits.max_message_bytes)
            if self.held_bytes > self._limits.incomplete_bytes:
                raise MessageTooLargeError("too many large requests in progress on one connection")
        except MessageTooLargeError:
            self.release(stream)
            stream.refuse()
            raise

    def release(self, stream: Stream) -> None:
        """Stop counting a request, before its last piece is added or when its stream is closed."""
        if stream.state is StreamState.OPEN and not stream.is_streaming:
            self._hold(-stream.received_bytes)

    def _hold(self, size: int) -> None:
        self.held_bytes += size
        self._memory.held_bytes += size
