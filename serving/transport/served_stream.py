"""A call's stream as the transport serves it, and what its events call."""

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
        # None where everybody may call.
        self.caller: Caller | None = None
        # The client left, or its connection was lost.
        self.on_cancelled: Callable[[], None] | None = None
        # Of a streaming one: more has come, or the end.
        self.on_data: Callable[[], None] | None = None

    def forget_handler(self) -> None:
        """It needs to hear no more. It refers to the stream, and both would wait for the garbage collector."""
        self.on_cancelled = self.on_data = None


def notify_cancelled(events: Iterable[Event[ServedStream]]) -> None:
    """Without a connection's lock: a handler may take locks of its own."""
    for event in events:
        if type(event) is CallCancelled:
            on_cancelled = event.stream.on_cancelled
            event.stream.forget_handler()
            if on_cancelled is not None:
                on_cancelled()
