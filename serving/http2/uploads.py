"""Requests of one message that are not whole yet: bounded each, and all of a connection together."""

from serving.http2.limits import Limits
from serving.http2.states import StreamState
from serving.http2.stream import MessageTooLargeError, Stream


class Uploads:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held_bytes = 0

    def take(self, stream: Stream, payload: memoryview) -> None:
        stream.take(payload)
        self.held_bytes += len(payload)

    def check(self, stream: Stream) -> None:
        """As soon as the length is known. MessageTooLargeError: the stream's request is discarded from now on."""
        try:
            stream.check_size(self._limits.max_message_bytes)
            if self.held_bytes > self._limits.incomplete_bytes:
                raise MessageTooLargeError("too many large requests under way on one connection")
        except MessageTooLargeError:
            self.release(stream)
            stream.refuse()
            raise

    def release(self, stream: Stream) -> None:
        """Before the request is whole or its stream is closed: it no longer counts."""
        if stream.state is StreamState.OPEN and not stream.is_streaming:
            self.held_bytes -= stream.received_bytes
