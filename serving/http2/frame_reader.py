"""From bytes to whole frames: without padding, and with each header block in one piece."""

from ghostless.contract import http2_frames as frames
from serving.http2.errors import ConnectionFault
from serving.http2.headers import MAX_HEADER_BYTES

# What this side takes in one frame.
MAX_FRAME = 1 << 20
_PRIORITY_BYTES = 5

_SIZES = {frames.WINDOW_UPDATE: 4, frames.PING: 8}

# Kind, flags, stream, payload, and the length that counts against the windows. The payload is a view of what was read.
Frame = tuple[int, int, int, memoryview, int]


class FrameReader:
    """Of one client's connection, from its first byte on."""

    def __init__(self) -> None:
        self._preface_left = frames.PREFACE
        # The beginning of a frame that is not yet whole, and how many bytes it takes to go on.
        self._stash = bytearray()
        self._needed = 0
        # A header block whose CONTINUATION is to come: stream, flags, what there is of it.
        self._block: tuple[int, int, bytearray] | None = None

    def read(self, data: memoryview) -> list[Frame]:
        """The frames that end in `data`. ConnectionFault if it is not HTTP/2."""
        if self._stash:
            self._stash += data
            if len(self._stash) < self._needed:
                return []
            data, self._stash = memoryview(self._stash), bytearray()
        at = self._read_preface(data) if self._preface_left else 0
        whole: list[Frame] = []
        size, self._needed = len(data), frames.FRAME_HEADER
        while size - at >= frames.FRAME_HEADER:
            high, low, kind, flags, number = frames.parse_header(data, at)
            length = high << 8 | low
            if length > MAX_FRAME:
                raise ConnectionFault(f"a frame of {length} bytes", frames.FRAME_SIZE_ERROR)
            end = at + frames.FRAME_HEADER + length
            if end > size:
                self._needed = end - at
                break
            self._take(whole, kind, flags, number & frames.LARGEST_WINDOW, data[at + frames.FRAME_HEADER : end])
            at = end
        if at < size:
            self._stash = bytearray(data[at:])
        return whole

    def _read_preface(self, data: memoryview) -> int:
        expected = self._preface_left
        came = bytes(data[: len(expected)])
        if not expected.startswith(came):
            raise ConnectionFault("not HTTP/2 with prior knowledge, as gRPC clients speak it")
        self._preface_left = expected[len(came) :]
        return len(came)

    def _take(self, whole: list[Frame], kind: int, flags: int, number: int, payload: memoryview) -> None:
        length = len(payload)
        if self._block is not None or kind == frames.CONTINUATION:
            self._continue(whole, kind, flags, number, payload)
            return
        if (kind in _SIZES and length != _SIZES[kind]) or (kind == frames.SETTINGS and length % frames.SETTING_BYTES):
            raise ConnectionFault(f"a frame of kind {kind} of the wrong size, {length}", frames.FRAME_SIZE_ERROR)
        if flags & frames.PADDED and kind in (frames.DATA, frames.HEADERS):
            payload = _unpadded(payload)
        if kind == frames.HEADERS:
            if flags & frames.PRIORITY:
                if len(payload) < _PRIORITY_BYTES:
                    raise ConnectionFault("a priority that breaks off", frames.FRAME_SIZE_ERROR)
                payload = payload[_PRIORITY_BYTES:]
            _check_block(payload)
            if not flags & frames.END_HEADERS:
                self._block = (number, flags, bytearray(payload))
                return
        whole.append((kind, flags, number, payload, length))

    def _continue(self, whole: list[Frame], kind: int, flags: int, number: int, payload: memoryview) -> None:
        if self._block is None or kind != frames.CONTINUATION or self._block[0] != number:
            raise ConnectionFault("a header block was interrupted")
        _, first_flags, block = self._block
        block += payload
        _check_block(block)
        if flags & frames.END_HEADERS:
            self._block = None
            whole.append((frames.HEADERS, first_flags, number, memoryview(block), 0))


def _check_block(block: memoryview | bytearray) -> None:
    """Before it is decoded, which takes long where it is large."""
    if len(block) > MAX_HEADER_BYTES:
        raise ConnectionFault(f"headers of more than {MAX_HEADER_BYTES} bytes", frames.ENHANCE_YOUR_CALM)


def _unpadded(payload: memoryview) -> memoryview:
    padding = payload[0] if payload else 0
    if padding >= len(payload):
        raise ConnectionFault("a frame is all padding")
    return payload[1 : len(payload) - padding]
