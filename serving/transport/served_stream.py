"""A call's stream in the transport, and the callbacks for its events."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from serving.http2.events import CallCancelled, Event
from serving.http2.headers import RequestHead
from serving.http2.stream import Stream

if TYPE_CHECKING:
    from serving.security.gate import Caller
    from serving.transport.connection import Connection


class ServedStream(Stream):
    """A stream with its connection and the callbacks for its events."""

    __slots__ = ("caller", "connection", "on_cancelled", "on_data")

    connection: "Connection"

    def __init__(self, number: int, head: RequestHead, is_streaming: bool, window: int) -> None:
        super().__init__(number, head, is_streaming, window)
        # None if there is no access control.
        self.caller: Caller | None = None
        # Called if the client cancels, or its connection is lost.
        self.on_cancelled: Callable[[], None] | None = None
        # For a streaming request: called when more data, or the end, has arrived.
        self.on_data: Callable[[], None] | None = None

    def forget_handler(self) -> None:
        """Drop the callbacks: they refer to the stream, and the cycle would have to wait for the garbage collector."""
        self.on_cancelled = self.on_data = None


def notify_cancelled(events: Iterable[Event[ServedStream]]) -> None:
    """Call the handlers of cancelled calls, without holding a connection's lock, because a handler may take locks."""
    for event in events:
        if type(event) is CallCancelled:
            on_cancelled = event.stream.on_cancelled
            event.stream.forget_handler()
            if on_cancelled is not None:
                on_cancelled()
