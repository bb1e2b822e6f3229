"""The stream of one call: the received part of its request, and the unsent part of its response."""

import zlib
from collections.abc import Iterator

from ghostless.contract.http2_frames import MESSAGE_PREFIX
from serving.http2.headers import RequestHead
from serving.http2.states import StreamState

_PREFIX = MESSAGE_PREFIX.size
# zlib's value for "detect a gzip or zlib header".
_ANY_HEADER = zlib.MAX_WBITS | 32
# Looked up once: accessing a member of an enumeration through its class costs five times as much.
_OPEN, _CLOSED, _RESET = StreamState.OPEN, StreamState.CLOSED, StreamState.RESET_BY_SERVER
ENCODINGS = ("identity", "gzip", "deflate")
# Decompression takes 2 ms per MB on the thread that serves all clients. Messages above this size may be compressed to
# at most a 16th; deflate itself can reach 1:1032.
_ANY_RATIO_BYTES = 1 << 19
_MAX_RATIO = 16
# Cost of a message with a wrong length, or that can't be decompressed: a client that sends 25 of them is disconnected.
_BAD_MESSAGE_COST = 48


class MessageError(Exception):
    """The messages of the request are invalid."""


class MessageTooLargeError(MessageError):
    pass


class Stream:
    """`credit` is what may be sent in addition to the initial window: the client's WINDOW_UPDATEs minus the bytes
    sent."""

    __slots__ = (
        "_body",
        "body_left",
        "cost",
        "credit",
        "head",
        "headers_sent",
        "is_faulty",
        "is_refused",
        "is_streaming",
        "number",
        "pending",
        "state",
        "trailers",
        "window",
    )

    def __init__(self, number: int, head: RequestHead, is_streaming: bool, window: int) -> None:
        # The request may have many messages, consumed as they arrive; otherwise it is consumed when it is complete.
        self.is_streaming = is_streaming
        self.number = number
        self.head = head
        self.state = _OPEN
        self.credit = 0
        # What its end costs in the budget, in addition to its refill.
        self.cost = 0
        # The call failed because of its request.
        self.is_faulty = False
        # What the client may still send on it.
        self.window = window
        self._body = bytearray()
        # Remaining bytes of the announced content-length; None if none was announced.
        self.body_left = head.content_length
        # The request is too large; the rest of it is discarded.
        self.is_refused = False
        self.headers_sent = False
        # Bytes held back by flow control, and the trailers that follow them.
        self.pending: list[memoryview] = []
        self.trailers: bytes | None = None

    @property
    def half_closed(self) -> bool:
        """Whether the client has sent its whole request."""
        return self.state is not _OPEN

    @property
    def ended(self) -> bool:
        """Whether the response is complete, or the call was cancelled."""
        state = self.state
        return state is _CLOSED or state is _RESET

    @property
    def is_over(self) -> bool:
        """Whether nothing can be added to its response."""
        state = self.state
        return self.trailers is not None or state is _CLOSED or state is _RESET

    @property
    def received_bytes(self) -> int:
        return len(self._body)

    def take(self, piece: memoryview) -> None:
        self._body += piece

    def refuse(self) -> None:
        """Discard the received part of the request, and the rest as it arrives."""
        self.is_refused = True
        self._body = bytearray()

    def check_size(self, max_message_bytes: int) -> None:
        """Check the message's length as soon as it is known."""
        if len(self._body) >= _PREFIX:
            length = MESSAGE_PREFIX.unpack_from(self._body)[1]
            if length > max_message_bytes:
                raise _too_large(length, max_message_bytes)

    def only_message(self, max_message_bytes: int) -> bytes:
        """The message of a call whose request is one message, after the client has sent it."""
        self.cost = _BAD_MESSAGE_COST  # unless the message is valid
        body, self._body = self._body, bytearray()
        if len(body) < _PREFIX:
            raise MessageError("takes exactly one request message, got none")
        compressed, length = MESSAGE_PREFIX.unpack_from(body)
        if length > max_message_bytes:
            raise _too_large(length, max_message_bytes)
        if len(body) != _PREFIX + length:
            raise MessageError("takes exactly one request message, got more or an incomplete one")
        with memoryview(body) as view:
            message = self._plain(view[_PREFIX:], compressed, max_message_bytes)
        self.cost = 0
        return message

    def messages(self, max_message_bytes: int) -> Iterator[bytes]:
        """The messages that are complete so far, each once."""
        while len(self._body) >= _PREFIX:
            self.check_size(max_message_bytes)
            compressed, length = MESSAGE_PREFIX.unpack_from(self._body)
            end = _PREFIX + length
            if len(self._body) < end:
                return
            with memoryview(self._body) as view:
                message = self._plain(view[_PREFIX:end], compressed, max_message_bytes)
            del self._body[:end]
            yield message

    def _plain(self, data: memoryview, compressed: int, max_message_bytes: int) -> bytes:
        if not compressed:
            return bytes(data)
        if self.head.encoding not in ("gzip", "deflate"):
            raise MessageError(f"cannot decompress a message with grpc-encoding {self.head.encoding!r}")
        inflater = zlib.decompressobj(_ANY_HEADER)
        most = min(max_message_bytes, max(_ANY_RATIO_BYTES, _MAX_RATIO * len(data)))
        try:
            plain = inflater.decompress(data, most + 1)
        except zlib.error as error:
            raise MessageError(f"cannot decompress a message: {error}") from error
        if len(plain) > max_message_bytes:
            raise _too_large(len(plain), max_message_bytes)
        if len(plain) > most:
            raise MessageTooLargeError(
                f"a message of {most} bytes or more was compressed to a {_MAX_RATIO}th or less; send it uncompressed"
            )
        if not inflater.eof:
            raise MessageError("a compressed message is truncated")
        return plain


def _too_large(length: int, most: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"a message of {length} bytes or more, at most {most} are allowed")
