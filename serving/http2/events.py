"""The events that `ServerProtocol` reports for a client's bytes, in order."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from serving.http2.stream import MessageTooLargeError, Stream

AnyStream = TypeVar("AnyStream", bound=Stream)


@dataclass(slots=True)
class RequestReceived(Generic[AnyStream]):
    """The request of a call is complete or, for a method with a stream of messages, its headers have arrived."""

    stream: AnyStream


@dataclass(slots=True)
class RequestContinued(Generic[AnyStream]):
    """More data of a stream of messages, or its end."""

    stream: AnyStream


@dataclass(slots=True)
class RequestTooLarge(Generic[AnyStream]):
    """The request is too large; the rest is discarded, and the call needs a status."""

    stream: AnyStream
    error: MessageTooLargeError


@dataclass(slots=True)
class CallCancelled(Generic[AnyStream]):
    """The call was reset by either side, or its connection ended. There may not have been a RequestReceived."""

    stream: AnyStream


Event = RequestReceived[AnyStream] | RequestContinued[AnyStream] | RequestTooLarge[AnyStream] | CallCancelled[AnyStream]
