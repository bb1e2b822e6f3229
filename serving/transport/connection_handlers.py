"""How a connection reports events: to its owner about calls and its socket, and to the handlers of cancelled calls."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.http2.events import CallCancelled, Event
from serving.http2.stream import MessageTooLargeError

if TYPE_CHECKING:
    from serving.transport.connection import Connection, ServedStream


@dataclass(frozen=True)
class ConnectionHandlers:
    """`on_call` gets each stream whose request is complete, or is a stream of messages that begins; `on_too_large` gets
    those whose request is too large. `on_write_interest`: a socket's buffer is full, or no longer full. `on_more`: the
    connection needs another turn. `on_lost`: the connection can no longer be used."""

    on_call: Callable[["ServedStream"], None]
    on_too_large: Callable[["ServedStream", MessageTooLargeError], None]
    on_write_interest: Callable[["Connection"], None]
    on_more: Callable[["Connection"], None]
    on_lost: Callable[["Connection"], None]


def notify_cancelled(events: "Iterable[Event[ServedStream]]") -> None:
    """Call the handlers of cancelled calls, without holding a connection's lock, because a handler may take locks."""
    for event in events:
        if type(event) is CallCancelled:
            on_cancelled = event.stream.on_cancelled
            event.stream.forget_handler()
            if on_cancelled is not None:
                on_cancelled()
