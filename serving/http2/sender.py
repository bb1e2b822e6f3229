"""Sends the responses of one connection, as far as the client's windows allow (RFC 9113, section 5.2)."""

import struct
from collections.abc import Iterable
from typing import Generic

from ghostless.contract import http2_frames as frames
from ghostless.contract.http2_frames import MESSAGE_PREFIX
from serving.http2.budget import Budget
from serving.http2.errors import ConnectionFault, StreamFault
from serving.http2.events import AnyStream
from serving.http2.headers import ANSWER_HEADERS, EMPTY_TABLE, OK_TRAILERS
from serving.http2.memory import ClientMemory

# A response that is sent at once: headers, the header of its only DATA frame, and gRPC's prefix; then message and
# trailers.
_LEAD = struct.Struct(f">HBBBI{len(ANSWER_HEADERS)}sHBBBIBI")
_TAIL = struct.Struct(f">HBBBI{len(OK_TRAILERS)}s")
_LAST = frames.END_HEADERS | frames.END_STREAM

# A client may send a WINDOW_UPDATE for every _BYTES_PER_WINDOW_UPDATE bytes of a response.
_BYTES_PER_WINDOW_UPDATE = 2048

Pieces = list[bytes | memoryview]


class Sender(Generic[AnyStream]):
    """Appends bytes to `out`. Methods that may complete a stream's response return whether they did."""

    def __init__(self, out: Pieces, budget: Budget, memory: ClientMemory) -> None:
        self._out = out
        self._budget = budget
        self._memory = memory
        # Bytes of responses that wait for the client's windows.
        self.held_bytes = 0
        # What the client accepts: on the whole connection, initially on a stream, and in one frame.
        self._window = frames.DEFAULT_WINDOW
        self._stream_window = frames.DEFAULT_WINDOW
        self._max_frame = frames.DEFAULT_FRAME
        # Upper bound on the credit of all streams.
        self._most_credit = 0
        self._table_update = b""
        # Streams with more to send than the windows allow, by number, in turn. While the connection's window is open,
        # their own windows are closed.
        self.held_back: dict[int, AnyStream] = {}
        # A window changed for all of them. They are checked once per read, however many frames it had.
        self.needs_resume = False

    def take_setting(self, name: int, value: int, streams: Iterable[AnyStream]) -> None:
        """Apply a setting of the client, also to the open `streams`."""
        if name == frames.INITIAL_WINDOW_SIZE:
            if value > frames.LARGEST_WINDOW:
                raise ConnectionFault(f"SETTINGS_INITIAL_WINDOW_SIZE is too large: {value}", frames.FLOW_CONTROL_ERROR)
            self._stream_window = value
            self._check_windows(streams)
            self.needs_resume = True
        elif name == frames.MAX_FRAME_SIZE:
            if not frames.DEFAULT_FRAME <= value <= frames.LARGEST_FRAME:
                raise ConnectionFault(f"SETTINGS_MAX_FRAME_SIZE is out of range: {value}")
            self._max_frame = value
        elif name == frames.ENABLE_PUSH:
            if value > 1:
                raise ConnectionFault(f"SETTINGS_ENABLE_PUSH must be 0 or 1, got {value}")
        elif name == frames.HEADER_TABLE_SIZE and value < frames.DEFAULT_HEADER_TABLE:
            # The table is not used, but the client expects a confirmation.
            self._table_update = EMPTY_TABLE

    def _check_windows(self, streams: Iterable[AnyStream]) -> None:
        """Check that no window becomes too large. Credits are relative to the initial window, so a change costs the
        same however many streams are open; streams are checked only if the one with the most credit may have ended."""
        if self._stream_window + self._most_credit > frames.LARGEST_WINDOW:
            self._most_credit = max((stream.credit for stream in streams), default=0)
            if self._stream_window + self._most_credit > frames.LARGEST_WINDOW:
                raise ConnectionFault(
                    "SETTINGS_INITIAL_WINDOW_SIZE makes the window of a stream too large", frames.FLOW_CONTROL_ERROR
                )

    def open_window(self, increment: int) -> None:
        """Enlarge the connection's window."""
        if self._window <= 0:
            self.needs_resume = True
        self._window += increment
        if self._window > frames.LARGEST_WINDOW:
            raise ConnectionFault("WINDOW_UPDATE makes the connection's window too large", frames.FLOW_CONTROL_ERROR)

    def open_stream_window(self, stream: AnyStream, increment: int) -> bool:
        """Enlarge the stream's window; returns whether its response is complete."""
        stream.credit += increment
        if self._stream_window + stream.credit > frames.LARGEST_WINDOW:
            raise StreamFault("WINDOW_UPDATE makes the stream's window too large", frames.FLOW_CONTROL_ERROR)
        if stream.credit > self._most_credit:
            self._most_credit = stream.credit
        return self._resume_stream(stream)

    def answer(self, stream: AnyStream, message: bytes) -> bool:
        """Send the only message of a successful call; returns whether it was sent completely."""
        size = len(message) + MESSAGE_PREFIX.size
        room = min(self._max_frame, self._window, self._stream_window + stream.credit)
        if size > room or self.held_back or self._table_update:
            self.send(stream, message)
            return self.end(stream, OK_TRAILERS)
        self._window -= size
        number = stream.number
        lead = _LEAD.pack(
            *(0, len(ANSWER_HEADERS), frames.HEADERS, frames.END_HEADERS, number, ANSWER_HEADERS),
            *(size >> 8, size & 0xFF, frames.DATA, 0, number),
            *(0, len(message)),
        )
        last = _TAIL.pack(0, len(OK_TRAILERS), frames.HEADERS, _LAST, number, OK_TRAILERS)
        self._out += (lead, message, last)
        return True

    def send(self, stream: AnyStream, message: bytes) -> None:
        """Send one message of a response."""
        if not stream.headers_sent:
            self.send_block(stream.number, ANSWER_HEADERS, 0)
            stream.headers_sent = True
        self.held_back[stream.number] = stream
        stream.pending.append(memoryview(MESSAGE_PREFIX.pack(0, len(message))))
        self._hold(MESSAGE_PREFIX.size + len(message))
        if message:
            stream.pending.append(memoryview(message))
        self._resume_stream(stream)

    def end(self, stream: AnyStream, trailers: bytes) -> bool:
        """End the response with these trailers, after the messages already sent; returns whether everything was
        sent."""
        stream.trailers = trailers
        if not stream.pending:
            self._send_trailers(stream)
            return True
        return False

    def resume(self) -> list[AnyStream]:
        """Send what was held back, as far as the windows allow, in turn; returns the streams that are complete."""
        self.needs_resume = False
        finished: list[AnyStream] = []
        for number, stream in list(self.held_back.items()):
            if self._window <= 0:
                break
            self.held_back[number] = self.held_back.pop(number)
            if self._resume_stream(stream):
                finished.append(stream)
        return finished

    def _resume_stream(self, stream: AnyStream) -> bool:
        """The same for one stream, if only its window changed."""
        if stream.number not in self.held_back:
            return False
        self._send_pending(stream)
        if stream.pending:
            return False
        self.forget(stream)
        if stream.trailers is None:
            return False
        self._send_trailers(stream)
        return True

    def forget(self, stream: AnyStream) -> None:
        """Drop everything that is still to be sent on the stream."""
        self.held_back.pop(stream.number, None)
        if stream.pending:
            self._hold(-sum(map(len, stream.pending)))
            stream.pending.clear()

    def _hold(self, size: int) -> None:
        self.held_bytes += size
        self._memory.held_bytes += size

    def _send_pending(self, stream: AnyStream) -> None:
        sent = 0
        while stream.pending:
            allowed = min(self._max_frame, self._window, self._stream_window + stream.credit)
            if allowed <= 0:
                break
            pieces, size = _cut(stream.pending, allowed)
            self._out.append(frames.frame_header(size, frames.DATA, 0, stream.number))
            self._out += pieces
            self._window -= size
            stream.credit -= size
            sent += size
        if sent:
            self._hold(-sent)
            self._budget.earn(sent // _BYTES_PER_WINDOW_UPDATE)

    def _send_trailers(self, stream: AnyStream) -> None:
        assert stream.trailers is not None
        block = stream.trailers if stream.headers_sent else ANSWER_HEADERS + stream.trailers
        self.send_block(stream.number, block, frames.END_STREAM)

    def send_block(self, number: int, block: bytes, flags: int) -> None:
        block, self._table_update = self._table_update + block, b""
        pieces = [block[start : start + self._max_frame] for start in range(0, len(block), self._max_frame)]
        kind = frames.HEADERS
        for position, piece in enumerate(pieces, 1):
            last = frames.END_HEADERS if position == len(pieces) else 0
            self._out.append(frames.frame(kind, flags | last, number, piece))
            kind, flags = frames.CONTINUATION, 0


def _cut(pending: list[memoryview], allowed: int) -> tuple[list[memoryview], int]:
    """Take up to `allowed` bytes from the front of `pending`."""
    taken: list[memoryview] = []
    left = allowed
    while pending and left:
        first = pending[0]
        if len(first) > left:
            taken.append(first[:left])
            pending[0] = first[left:]
            left = 0
        else:
            taken.append(first)
            pending.pop(0)
            left -= len(first)
    return taken, allowed - left
