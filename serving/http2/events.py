"""What `ServerProtocol` reports of a client's bytes, in the order in which it happened."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from serving.http2.stream import MessageTooLargeError, Stream

AnyStream = TypeVar("AnyStream", bound=Stream)


@dataclass(slots=True)
class RequestReceived(Generic[AnyStream]):
    """A call whose request is whole; of a method that takes a stream of messages, its head."""

    stream: AnyStream


@dataclass(slots=True)
class RequestContinued(Generic[AnyStream]):
    """More of a stream of messages, or its end."""

    stream: AnyStream


@dataclass(slots=True)
class RequestTooLarge(Generic[AnyStream]):
    """The rest of the request is discarded; the call waits for its status."""

    stream: AnyStream
    error: MessageTooLargeError


@dataclass(slots=True)
class CallCancelled(Generic[AnyStream]):
    """The call was reset by either side, or its connection ended. There may have been no RequestReceived."""

    stream: AnyStream


Event = RequestReceived[AnyStream] | RequestContinued[AnyStream] | RequestTooLarge[AnyStream] | CallCancelled[AnyStream]
