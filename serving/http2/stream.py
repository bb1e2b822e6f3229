"""One call's stream: what came of its request, and what is left to send of its answer."""

import zlib
from collections.abc import Iterator

from ghostless.contract.http2_frames import MESSAGE_PREFIX
from serving.http2.headers import RequestHead
from serving.http2.states import StreamState

_PREFIX = MESSAGE_PREFIX.size
# zlib's name for "a gzip or a zlib header, whichever comes".
_ANY_HEADER = zlib.MAX_WBITS | 32
# Looked up here: as an attribute of its class, a member of an enumeration costs five times as much.
_OPEN, _CLOSED, _RESET = StreamState.OPEN, StreamState.CLOSED, StreamState.RESET_BY_SERVER
ENCODINGS = ("identity", "gzip", "deflate")
# Inflating takes 2 ms a MB on the thread that serves all clients. Messages above this size may be compressed
# to a 16th. Deflate itself reaches 1:1032.
_ANY_RATIO_BYTES = 1 << 19
_MAX_RATIO = 16
# Of a message whose length is a lie, or that can't be decompressed: a client that sends 25 of them is closed.
_BAD_MESSAGE_COST = 48


class MessageError(Exception):
    """The request's messages can't be taken."""


class MessageTooLargeError(MessageError):
    pass


class Stream:
    """`credit` is what may be sent on it besides the initial window: the client's WINDOW_UPDATEs less what was sent."""

    __slots__ = (
        "_body",
        "body_left",
        "cost",
        "credit",
        "head",
        "headers_sent",
        "is_refused",
        "is_streaming",
        "number",
        "pending",
        "state",
        "trailers",
        "window",
    )

    def __init__(self, number: int, head: RequestHead, is_streaming: bool, window: int) -> None:
        # The request may be many messages, taken as they come; else it is taken when it is whole.
        self.is_streaming = is_streaming
        self.number = number
        self.head = head
        self.state = _OPEN
        self.credit = 0
        # What its end takes from the budget, besides what it gives back.
        self.cost = 0
        # What the client may still send on it.
        self.window = window
        self._body = bytearray()
        # Of the content-length that the client announced; None where it announced none.
        self.body_left = head.content_length
        # The request is too large; the rest of it is discarded.
        self.is_refused = False
        self.headers_sent = False
        # What flow control still holds back, and the block that follows it.
        self.pending: list[memoryview] = []
        self.trailers: bytes | None = None

    @property
    def half_closed(self) -> bool:
        """The client has sent all of its request."""
        return self.state is not _OPEN

    @property
    def ended(self) -> bool:
        """The answer is whole, or nobody wants it."""
        state = self.state
        return state is _CLOSED or state is _RESET

    @property
    def is_over(self) -> bool:
        """Nothing can be added to its answer."""
        state = self.state
        return self.trailers is not None or state is _CLOSED or state is _RESET

    @property
    def received_bytes(self) -> int:
        return len(self._body)

    def take(self, piece: memoryview) -> None:
        self._body += piece

    def refuse(self) -> None:
        """Discard what came of the request, and what is to come."""
        self.is_refused = True
        self._body = bytearray()

    def check_size(self, max_message_bytes: int) -> None:
        """As soon as the message's length is known."""
        if len(self._body) >= _PREFIX:
            length = MESSAGE_PREFIX.unpack_from(self._body)[1]
            if length > max_message_bytes:
                raise _too_large(length, max_message_bytes)

    def only_message(self, max_message_bytes: int) -> bytes:
        """Of a call whose request is one message, after it is half closed."""
        self.cost = _BAD_MESSAGE_COST  # unless it is well
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
        """Those that are whole by now, each once."""
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
