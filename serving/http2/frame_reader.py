"""Reads complete frames from bytes: checked by the rules of their kind, without padding, header blocks in one piece."""

from collections.abc import Iterator
from dataclasses import dataclass

from ghostless.contract import http2_frames as frames
from serving.http2.budget import Budget
from serving.http2.errors import Closing, ConnectionFault
from serving.http2.limits import Limits

_PRIORITY_BYTES = 5
_EXCLUSIVE = 1 << 31
# A frame without a message spends one more for every _BYTES_PER_FRAME bytes.
_BYTES_PER_FRAME = 512
_HTTP1_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"CONNECT ", b"OPTIONS ", b"TRACE ", b"PATCH ")
_HTTP1_TEXT = b"This is a gRPC server; it speaks HTTP/2 with prior knowledge.\n"
_HTTP1_ANSWER = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_HTTP1_TEXT), _HTTP1_TEXT)
)

# Kind, flags, stream, payload, and the length that counts against the windows. The payload is a view of the read
# buffer.
Frame = tuple[int, int, int, memoryview, int]


@dataclass(frozen=True)
class _Rule:
    """Rule of a kind of frame. `on_stream`: True if it belongs to a stream, False to the connection, None to either."""

    on_stream: bool | None
    least_bytes: int = 0
    most_bytes: int = frames.LARGEST_FRAME
    multiple_of: int = 1


# RFC 9113, sections 6.1 to 6.10. A stream error may be treated as a connection error (section 5.4.1), as it is here: a
# client that violates these rules is broken.
_RULES = {
    frames.DATA: _Rule(on_stream=True),
    frames.HEADERS: _Rule(on_stream=True),
    frames.PRIORITY_FRAME: _Rule(True, _PRIORITY_BYTES, _PRIORITY_BYTES),
    frames.RST_STREAM: _Rule(True, 4, 4),
    frames.SETTINGS: _Rule(False, multiple_of=frames.SETTING_BYTES),
    frames.PUSH_PROMISE: _Rule(True),
    frames.PING: _Rule(False, 8, 8),
    frames.GOAWAY: _Rule(False, 8),
    frames.WINDOW_UPDATE: _Rule(None, 4, 4),
    frames.CONTINUATION: _Rule(True),
}


class FrameReader:
    """Reads the frames of one connection, from its first byte on."""

    def __init__(self, limits: Limits, budget: Budget) -> None:
        self._max_frame = limits.max_frame_bytes
        self._max_block = limits.max_block_bytes
        self._budget = budget
        self._preface_left = frames.PREFACE
        self._turn_work = limits.turn_work
        # Additional work of the last frame, counted towards the turn.
        self.extra_work = 0
        # The turn ended before everything was read: `read` has more to do, even without more data.
        self.has_more = False
        self._turns = 0
        # The beginning of an incomplete frame, and the number of bytes needed to continue.
        self._stash = bytearray()
        self._needed = 0
        # An incomplete header block, which needs CONTINUATION: stream, flags, and the part received so far.
        self._block: tuple[int, int, bytearray] | None = None

    @property
    def waits_for(self) -> tuple[bool, int] | None:
        """For an incomplete frame or header block: whether it is DATA, and a number that changes when a frame ends."""
        if self._block is not None:
            return False, -self._block[0]
        if not self._stash:
            return None
        return len(self._stash) >= frames.FRAME_HEADER and self._stash[3] == frames.DATA, self._turns

    def read(self, data: memoryview) -> Iterator[Frame]:
        """The frames that are completed by `data`, up to the limit of a turn. Raises ConnectionFault if it is not
        HTTP/2. Frames of an unknown kind are skipped (section 5.5)."""
        if self._stash:
            self._stash += data
            if len(self._stash) < self._needed:
                return
            data, self._stash = memoryview(self._stash), bytearray()
        at = self._read_preface(data) if self._preface_left else 0
        size, self._needed = len(data), frames.FRAME_HEADER
        self.has_more = False
        work_left = self._turn_work
        while size - at >= frames.FRAME_HEADER:
            if work_left <= 0:
                self.has_more = True
                break
            high, low, kind, flags, number = frames.parse_header(data, at)
            length = high << 8 | low
            if length > self._max_frame:
                raise ConnectionFault(
                    f"frame of {length} bytes is larger than {self._max_frame}", frames.FRAME_SIZE_ERROR
                )
            end = at + frames.FRAME_HEADER + length
            if end > size:
                self._needed = end - at
                break
            frame = self._frame(kind, flags, number & frames.LARGEST_WINDOW, data[at + frames.FRAME_HEADER : end])
            work_left -= 1
            if frame is not None:
                yield frame
                if self.extra_work:
                    work_left -= self.extra_work
                    self.extra_work = 0
            at = end
        if work_left != self._turn_work:
            self._turns += 1
        if at < size:
            self._stash = bytearray(data[at:])

    def _read_preface(self, data: memoryview) -> int:
        expected = self._preface_left
        came = bytes(data[: len(expected)])
        if not expected.startswith(came):
            is_http1 = expected is frames.PREFACE and came.startswith(_HTTP1_METHODS)
            raise ConnectionFault(
                "not HTTP/2: expected the connection preface of a gRPC client",
                reason=Closing.NOT_HTTP2,
                answer=_HTTP1_ANSWER if is_http1 else b"",
            )
        self._preface_left = expected[len(came) :]
        return len(came)

    def _frame(self, kind: int, flags: int, number: int, payload: memoryview) -> Frame | None:
        """The frame; None if its header block is incomplete, or if its kind is unknown."""
        if self._block is not None or kind == frames.CONTINUATION:
            return self._continue(kind, flags, number, payload)
        length = len(payload)
        if not number or kind > frames.HEADERS:
            # DATA and HEADERS on a stream need no further checks, and are the most frequent.
            rule = _RULES.get(kind)
            if rule is None:
                self._budget.spend(1 + length // _BYTES_PER_FRAME)
                return None
            _check(rule, kind, flags, number, payload)
        if flags & frames.PADDED and kind <= frames.HEADERS:
            payload = _unpadded(payload)
        if kind == frames.HEADERS:
            if flags & frames.PRIORITY:
                if len(payload) < _PRIORITY_BYTES:
                    raise ConnectionFault("HEADERS frame is too short for its priority fields", frames.FRAME_SIZE_ERROR)
                _check_dependency(number, payload)
                payload = payload[_PRIORITY_BYTES:]
            if length > self._max_block:
                self._check_block(payload)
            if not flags & frames.END_HEADERS:
                self._block = (number, flags, bytearray(payload))
                return None
        return kind, flags, number, payload, length

    def _continue(self, kind: int, flags: int, number: int, payload: memoryview) -> Frame | None:
        if self._block is None or kind != frames.CONTINUATION or self._block[0] != number:
            raise ConnectionFault("a header block is interrupted by another frame, or CONTINUATION without HEADERS")
        self._budget.spend(1)
        _, first_flags, block = self._block
        block += payload
        self._check_block(block)
        if not flags & frames.END_HEADERS:
            return None
        self._block = None
        return frames.HEADERS, first_flags, number, memoryview(block), 0

    def _check_block(self, block: memoryview | bytearray) -> None:
        """Check the size of a header block before it is decoded, because decoding a large one takes long."""
        if len(block) > self._max_block:
            raise ConnectionFault(
                f"headers are larger than {self._max_block} bytes", frames.ENHANCE_YOUR_CALM, Closing.HEADERS
            )


def _check(rule: _Rule, kind: int, flags: int, number: int, payload: memoryview) -> None:
    length = len(payload)
    if kind == frames.PUSH_PROMISE:
        raise ConnectionFault("clients must not send PUSH_PROMISE")
    if rule.on_stream is not None and rule.on_stream != bool(number):
        raise ConnectionFault(f"frame of type {kind} is not allowed on stream {number}")
    fits = rule.least_bytes <= length <= rule.most_bytes and not length % rule.multiple_of
    if not fits or (kind == frames.SETTINGS and flags & frames.ACK and length):
        raise ConnectionFault(f"frame of type {kind} has an invalid size, {length} bytes", frames.FRAME_SIZE_ERROR)
    if kind == frames.PRIORITY_FRAME:
        _check_dependency(number, payload)


def _check_dependency(number: int, priority: memoryview) -> None:
    """RFC 7540, section 5.3.1. RFC 9113 no longer has priorities, but clients that send them must send valid ones."""
    if int.from_bytes(priority[:4]) & ~_EXCLUSIVE == number:
        raise ConnectionFault(f"stream {number} depends on itself")


def _unpadded(payload: memoryview) -> memoryview:
    if not payload:
        raise ConnectionFault("padded frame without a padding length", frames.FRAME_SIZE_ERROR)
    padding = payload[0]
    if padding >= len(payload):
        raise ConnectionFault("padding is longer than the frame")
    return payload[1 : len(payload) - padding]
