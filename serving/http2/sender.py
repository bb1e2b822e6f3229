"""Answers of one connection on their way out, as far as the client's windows allow (RFC 9113, section 5.2)."""

import struct
from collections.abc import Callable, Iterable, Mapping

from ghostless.contract import http2_frames as frames
from ghostless.contract.http2_frames import MESSAGE_PREFIX
from serving.http2.errors import ConnectionFault
from serving.http2.headers import ANSWER_HEADERS, EMPTY_TABLE, OK_TRAILERS
from serving.http2.outgoing import Outgoing
from serving.http2.stream import Stream

# An answer that goes out at once: headers, the head of its only DATA frame, and gRPC's prefix; then message, trailers.
_LEAD = struct.Struct(f">HBBBI{len(ANSWER_HEADERS)}sHBBBIBI")
_LAST = frames.END_HEADERS | frames.END_STREAM


class Sender:
    """Not for two threads at once. `on_finished` is called with each stream whose answer has gone out."""

    def __init__(self, outgoing: Outgoing, on_finished: Callable[[Stream], None]) -> None:
        self._outgoing = outgoing
        self.on_finished = on_finished
        # What the client takes: on the whole connection, on a stream to begin with, and in one frame.
        self._window = frames.DEFAULT_WINDOW
        self.stream_window = frames.DEFAULT_WINDOW
        self._max_frame = frames.DEFAULT_FRAME
        self._table_update = b""
        # Streams with more to send than the windows took, by number and in turn. While the connection's window is open,
        # it is their own that is shut.
        self._held_back: dict[int, Stream] = {}

    def take_settings(self, settings: Mapping[int, int], streams: Iterable[Stream]) -> None:
        """What the client wants kept from now on, for the open `streams` too; it is told that it is."""
        window = settings.get(frames.INITIAL_WINDOW_SIZE, self.stream_window)
        if window > frames.LARGEST_WINDOW:
            raise ConnectionFault("the initial window is too large", frames.FLOW_CONTROL_ERROR)
        for stream in streams:
            stream.window += window - self.stream_window
            if stream.window > frames.LARGEST_WINDOW:
                raise ConnectionFault("a stream's window is too large", frames.FLOW_CONTROL_ERROR)
        self.stream_window = window
        largest = settings.get(frames.MAX_FRAME_SIZE, self._max_frame)
        if not frames.DEFAULT_FRAME <= largest <= frames.LARGEST_FRAME:
            raise ConnectionFault(f"the largest frame can't be {largest} bytes")
        self._max_frame = largest
        if settings.get(frames.HEADER_TABLE_SIZE, frames.DEFAULT_HEADER_TABLE) < frames.DEFAULT_HEADER_TABLE:
            # None is used here, but the client waits to hear so.
            self._table_update = EMPTY_TABLE
        self._outgoing.write(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._resume()

    def open_window(self, increment: int) -> None:
        """The connection's own."""
        was_shut = self._window <= 0
        self._window += increment
        if self._window > frames.LARGEST_WINDOW:
            raise ConnectionFault("the connection's window is too large", frames.FLOW_CONTROL_ERROR)
        if was_shut:
            self._resume()

    def open_stream_window(self, stream: Stream, increment: int) -> bool:
        """False if it is too large then."""
        stream.window += increment
        if stream.window > frames.LARGEST_WINDOW:
            return False
        self._resume_stream(stream)
        return True

    def answer(self, stream: Stream, message: bytes) -> None:
        """The one message of a call that succeeded."""
        size = len(message) + MESSAGE_PREFIX.size
        room = min(self._max_frame, self._window, stream.window)
        if size > room or self._held_back or self._table_update:
            self.send(stream, message)
            self.end(stream, OK_TRAILERS)
            return
        self._window -= size
        number = stream.number
        lead = _LEAD.pack(
            *(0, len(ANSWER_HEADERS), frames.HEADERS, frames.END_HEADERS, number, ANSWER_HEADERS),
            *(size >> 8, size & 0xFF, frames.DATA, 0, number),
            *(0, len(message)),
        )
        last = frames.frame_header(len(OK_TRAILERS), frames.HEADERS, _LAST, number) + OK_TRAILERS
        self._outgoing.write(lead, message, last)
        self.on_finished(stream)

    def send(self, stream: Stream, message: bytes) -> None:
        """One message of an answer."""
        if not stream.headers_sent:
            self.send_block(stream, ANSWER_HEADERS, 0)
            stream.headers_sent = True
        self._held_back[stream.number] = stream
        stream.pending.append(memoryview(MESSAGE_PREFIX.pack(0, len(message))))
        if message:
            stream.pending.append(memoryview(message))
        self._resume_stream(stream)

    def end(self, stream: Stream, trailers: bytes) -> None:
        """With this block, after the messages that were sent."""
        stream.trailers = trailers
        if not stream.pending:
            self._send_trailers(stream)

    def _resume(self) -> None:
        """Send what was held back, as far as it goes now, the streams taking turns."""
        for number, stream in list(self._held_back.items()):
            if self._window <= 0:
                return
            self._held_back[number] = self._held_back.pop(number)
            self._resume_stream(stream)

    def _resume_stream(self, stream: Stream) -> None:
        """The same, where nothing changed for other streams."""
        if stream.number not in self._held_back:
            return
        self._send_pending(stream)
        if not stream.pending:
            self.forget(stream)
            if stream.trailers is not None:
                self._send_trailers(stream)

    def forget(self, stream: Stream) -> None:
        """Nothing of it is to be sent any more."""
        self._held_back.pop(stream.number, None)

    def _send_pending(self, stream: Stream) -> None:
        parts: list[bytes | memoryview] = []
        while stream.pending:
            allowed = min(self._max_frame, self._window, stream.window)
            if allowed <= 0:
                break
            pieces, size = _cut(stream.pending, allowed)
            parts.append(frames.frame_header(size, frames.DATA, 0, stream.number))
            parts += pieces
            self._window -= size
            stream.window -= size
        if parts:
            self._outgoing.write(*parts)

    def _send_trailers(self, stream: Stream) -> None:
        assert stream.trailers is not None
        block = stream.trailers if stream.headers_sent else ANSWER_HEADERS + stream.trailers
        self.send_block(stream, block, frames.END_STREAM)
        self.on_finished(stream)

    def send_block(self, stream: Stream, block: bytes, flags: int) -> None:
        block, self._table_update = self._table_update + block, b""
        pieces = [block[start : start + self._max_frame] for start in range(0, len(block), self._max_frame)]
        kind = frames.HEADERS
        for position, piece in enumerate(pieces, 1):
            last = frames.END_HEADERS if position == len(pieces) else 0
            self._outgoing.write(frames.frame(kind, flags | last, stream.number, piece))
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
