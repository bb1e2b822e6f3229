"""One client's connection, server side: frames in, calls out; answers in, frames out.

`receive` is called by whoever polls the sockets, one thread at a time. Answers may come from any thread, so what both
touch is guarded by the connection's lock. Nothing here waits: what the socket or the client's windows don't take now is
kept, and goes out when they do.
"""

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from serving.http2 import frames
from serving.http2.errors import ConnectionFault
from serving.http2.frames import MESSAGE_PREFIX
from serving.http2.headers import ANSWER_HEADERS, MAX_HEADER_BYTES, OK_TRAILERS, HeadReader, http_error
from serving.http2.stream import MessageTooLargeError, Stream

# Unsent bytes above which no more is read from a client: one that asks and does not listen must not fill the memory.
_MAX_UNSENT = 64 << 20
# The connection's own window is opened again when so much of it is used.
_WINDOW_STEP = 1 << 22
# Incomplete requests of one connection may hold so many messages' worth of bytes.
_INCOMPLETE_MESSAGES = 4
_DRAIN_PING = b"draining"

# An answer that goes out at once: headers, the head of its only DATA frame, and gRPC's prefix; then message, trailers.
_LEAD = struct.Struct(f">HBBBI{len(ANSWER_HEADERS)}sHBBBIBI")
_END = frames.frame_header
_TRAILERS_SIZE = len(OK_TRAILERS)
_HEADERS_SIZE = len(ANSWER_HEADERS)


@dataclass(frozen=True)
class Limits:
    max_message_bytes: int
    max_streams: int


class Connection:
    """`wants_writing` tells the poller that the socket's buffer is full, or no longer."""

    def __init__(
        self,
        sock: socket.socket,
        limits: Limits,
        wants_writing: Callable[["Connection", bool], None],
        too_large: Callable[[Stream, MessageTooLargeError], None],
        streaming: Collection[str] = (),
    ) -> None:
        """`streaming`: methods whose request is a stream of messages."""
        sock.setblocking(False)
        self.socket = sock
        self.fd = sock.fileno()
        self.peer = _peer(sock)
        self.lost = False
        self._limits = limits
        self._wants_writing = wants_writing
        self._too_large = too_large
        self._streaming = streaming
        # To be told that their clients left, once the lock is free.
        self._left: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._heads = HeadReader()
        self.streams: dict[int, Stream] = {}
        self._last_stream = 0
        self._draining = False
        # Half a frame, and the rest of a header block that came in pieces.
        self._stash = b""
        self._preface_left = frames.PREFACE
        self._block: tuple[int, int, bytearray] | None = None
        self._incomplete_bytes = 0
        self._used_window = 0
        self._unsent: deque[bytes | memoryview] = deque()
        self._unsent_bytes = 0
        self._window = frames.DEFAULT_WINDOW
        self._stream_window = frames.DEFAULT_WINDOW
        self._max_frame = frames.DEFAULT_FRAME
        self._held_back: deque[Stream] = deque()
        self._opened: list[Stream] = []
        opening = frames.settings(
            {
                frames.MAX_CONCURRENT_STREAMS: limits.max_streams,
                frames.INITIAL_WINDOW_SIZE: min(frames.LARGEST_WINDOW, limits.max_message_bytes + (1 << 16)),
                frames.MAX_FRAME_SIZE: 1 << 20,
                frames.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
            }
        )
        with self._lock:
            self._write((opening + frames.window_update(_connection_window(limits) - frames.DEFAULT_WINDOW),))

    # --- what comes -------------------------------------------------------------------------------------------------

    @property
    def is_choked(self) -> bool:
        """So much is unsent that nothing more should be read."""
        return self._unsent_bytes > _MAX_UNSENT

    def receive(self, buffer: memoryview) -> list[Stream]:
        """Read what there is, through `buffer`; the streams of which a request is whole, or a stream of them begins."""
        try:
            size = self.socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            size = 0
        if not size:
            self.close()
            return []
        data = buffer[:size]
        if self._stash:
            data = memoryview(self._stash + data)
            self._stash = b""
        with self._lock:
            try:
                at = self._read_preface(data) if self._preface_left else 0
                at = self._read_frames(data, at)
            except ConnectionFault as fault:
                at = len(data)
                self._write((frames.go_away(self._last_stream, fault.code, str(fault)),))
                self._opened.clear()
                self._cancel_all()
            if at < len(data):
                self._stash = bytes(data[at:])
            opened, self._opened = self._opened, []
        self._tell_left()
        return opened

    def _read_preface(self, data: memoryview) -> int:
        expected = self._preface_left
        came = bytes(data[: len(expected)])
        if not expected.startswith(came):
            raise ConnectionFault("not HTTP/2 with prior knowledge, as gRPC clients speak it")
        self._preface_left = expected[len(came) :]
        return len(came)

    def _read_frames(self, data: memoryview, at: int) -> int:
        """The position of the first byte that belongs to a frame not yet whole."""
        size = len(data)
        while size - at >= frames.FRAME_HEADER:
            high, low, kind, flags, number = frames.parse_header(data, at)
            length = high << 8 | low
            end = at + frames.FRAME_HEADER + length
            if end > size:
                if length > 1 << 20:
                    raise ConnectionFault(f"a frame of {length} bytes", frames.FRAME_SIZE_ERROR)
                break
            payload = data[at + frames.FRAME_HEADER : end]
            number &= frames.LARGEST_WINDOW
            if self._block is not None and kind != frames.CONTINUATION:
                raise ConnectionFault("a header block was interrupted")
            if kind == frames.DATA:
                self._on_data(flags, number, payload, length)
            elif kind == frames.HEADERS:
                self._on_headers(flags, number, payload)
            elif kind == frames.WINDOW_UPDATE:
                self._on_window_update(number, payload)
            else:
                self._on_other(kind, flags, number, bytes(payload))
            at = end
        return at

    def _on_headers(self, flags: int, number: int, payload: memoryview) -> None:
        if flags & frames.PADDED:
            payload = _unpadded(payload)
        if flags & frames.PRIORITY:
            payload = payload[5:]
        if not flags & frames.END_HEADERS:
            self._block = (number, flags, bytearray(payload))
            return
        self._on_block(number, flags, bytes(payload))

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise ConnectionFault("a CONTINUATION without its HEADERS")
        _, first_flags, block = self._block
        block += payload
        if len(block) > MAX_HEADER_BYTES:
            raise ConnectionFault(f"headers of more than {MAX_HEADER_BYTES} bytes", frames.ENHANCE_YOUR_CALM)
        if flags & frames.END_HEADERS:
            self._block = None
            self._on_block(number, first_flags, bytes(block))

    def _on_block(self, number: int, flags: int, block: bytes) -> None:
        # Every block must be read, for the table that later ones refer to.
        head = self._heads.read(block)
        stream = self.streams.get(number)
        if stream is not None:
            # Trailers of the client's; gRPC has none that matter, but they end its request.
            if flags & frames.END_STREAM:
                self._half_close(stream)
            return
        if number <= self._last_stream:
            return  # of a stream that has ended already
        if not number % 2:
            raise ConnectionFault(f"a client's streams have odd numbers, {number} came")
        if self._draining:
            self._write((frames.reset(number, frames.REFUSED_STREAM),))
            return
        self._last_stream = number
        if len(self.streams) >= self._limits.max_streams:
            self._write((frames.reset(number, frames.REFUSED_STREAM),))
            return
        stream = Stream(self, number, head, self._stream_window, head.path in self._streaming)
        if head.http_status != 200:
            block = http_error(head.http_status, head.problem)
            self._write((frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, number, block),))
            return
        self.streams[number] = stream
        if stream.is_streaming:
            self._opened.append(stream)
        if flags & frames.END_STREAM:
            self._half_close(stream)

    def _on_data(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        self._used_window += length
        if self._used_window >= _WINDOW_STEP:
            self._write((frames.window_update(self._used_window),))
            self._used_window = 0
        stream = self.streams.get(number)
        if stream is None:
            if number > self._last_stream or not number:
                raise ConnectionFault(f"DATA on stream {number}, which nobody opened")
            return  # the call has ended; the client may not know yet
        if flags & frames.PADDED:
            payload = _unpadded(payload)
        if stream.half_closed:
            raise ConnectionFault(f"DATA on stream {number} after its end", frames.STREAM_CLOSED)
        stream.take(payload)
        self._incomplete_bytes += len(payload)
        if flags & frames.END_STREAM:
            self._half_close(stream)
            return
        if stream.is_streaming:
            # Its messages are taken as they come, so its window is opened again.
            if length:
                self._write((frames.window_update(length, number),))
            self._incomplete_bytes -= len(payload)
            if stream.on_data is not None:
                stream.on_data()
            return
        try:
            stream.check_size(self._limits.max_message_bytes)
            if self._incomplete_bytes > _INCOMPLETE_MESSAGES * self._limits.max_message_bytes:
                raise MessageTooLargeError("too many large requests under way on one connection")
        except MessageTooLargeError as large:
            self._incomplete_bytes -= stream.received_bytes
            self._too_large(stream, large)

    def _half_close(self, stream: Stream) -> None:
        stream.half_closed = True
        if not stream.is_streaming:
            self._incomplete_bytes -= stream.received_bytes
            self._opened.append(stream)
        elif stream.on_data is not None:
            stream.on_data()

    def _on_window_update(self, number: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise ConnectionFault("a WINDOW_UPDATE of the wrong size", frames.FRAME_SIZE_ERROR)
        increment = int.from_bytes(payload) & frames.LARGEST_WINDOW
        if not increment:
            raise ConnectionFault("a WINDOW_UPDATE by nothing")
        if not number:
            self._window += increment
            if self._window > frames.LARGEST_WINDOW:
                raise ConnectionFault("the connection's window is too large", frames.FLOW_CONTROL_ERROR)
        else:
            stream = self.streams.get(number)
            if stream is None:
                return
            stream.window += increment
        if self._held_back:
            self._send_held_back()

    def _on_other(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == frames.SETTINGS:
            if not flags & frames.ACK:
                self._on_settings(payload)
        elif kind == frames.PING:
            self._on_ping(flags, payload)
        elif kind == frames.RST_STREAM:
            stream = self.streams.get(number)
            if stream is not None:
                self._cancel(stream)
        elif kind == frames.CONTINUATION:
            self._on_continuation(flags, number, payload)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault("clients don't push")
        # GOAWAY: the client opens no more streams, those under way go on. PRIORITY and unknown kinds say nothing to us.

    def _on_settings(self, payload: bytes) -> None:
        if len(payload) % 6:
            raise ConnectionFault("SETTINGS of the wrong size", frames.FRAME_SIZE_ERROR)
        values = frames.parse_settings(payload)
        window = values.get(frames.INITIAL_WINDOW_SIZE, self._stream_window)
        if window > frames.LARGEST_WINDOW:
            raise ConnectionFault("the initial window is too large", frames.FLOW_CONTROL_ERROR)
        for stream in self.streams.values():
            stream.window += window - self._stream_window
        self._stream_window = window
        largest = values.get(frames.MAX_FRAME_SIZE, self._max_frame)
        if not frames.DEFAULT_FRAME <= largest <= frames.LARGEST_FRAME:
            raise ConnectionFault(f"the largest frame can't be {largest} bytes")
        self._max_frame = largest
        self._write((frames.frame(frames.SETTINGS, frames.ACK, 0),))
        self._send_held_back()

    def _on_ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ConnectionFault("a PING of the wrong size", frames.FRAME_SIZE_ERROR)
        if not flags & frames.ACK:
            self._write((frames.frame(frames.PING, frames.ACK, 0, payload),))
        elif payload == _DRAIN_PING:
            # The client has read the first GOAWAY, so what it still opens comes after the streams seen by now.
            self._draining = True
            self._write((frames.go_away(self._last_stream, frames.NO_ERROR),))
            self._close_if_drained()

    # --- what goes --------------------------------------------------------------------------------------------------

    def answer(self, stream: Stream, message: bytes) -> bool:
        """The one message of a call that succeeded. False if nobody waits for it."""
        size = len(message) + MESSAGE_PREFIX.size
        with self._lock:
            if stream.ended:
                return False
            if size > self._max_frame or size > self._window or size > stream.window or self._held_back:
                self.send(stream, message)
                self.end(stream, OK_TRAILERS)
                return True
            self._window -= size
            number = stream.number
            lead = _LEAD.pack(
                0,
                _HEADERS_SIZE,
                frames.HEADERS,
                frames.END_HEADERS,
                number,
                ANSWER_HEADERS,
                size >> 8,
                size & 0xFF,
                frames.DATA,
                0,
                number,
                0,
                len(message),
            )
            end = _END(_TRAILERS_SIZE, frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, number) + OK_TRAILERS
            self._write((lead, message, end))
            self._finish(stream)
        return True

    def send(self, stream: Stream, message: bytes) -> bool:
        """One message of an answer. False if nobody waits for it."""
        with self._lock:
            if stream.ended or stream.trailers is not None:
                return False
            if not stream.headers_sent:
                self._send_block(stream, ANSWER_HEADERS, 0)
                stream.headers_sent = True
            if not stream.pending:
                self._held_back.append(stream)
            stream.pending += (memoryview(MESSAGE_PREFIX.pack(0, len(message))), memoryview(message))
            self._send_held_back()
        return True

    def end(self, stream: Stream, trailers: bytes) -> bool:
        """With this block, after the messages that were sent. False if the call had ended."""
        with self._lock:
            if stream.ended or stream.trailers is not None:
                return False
            stream.trailers = trailers
            stream.on_cancel = None
            if not stream.pending:
                self._send_trailers(stream)
        return True

    def _send_trailers(self, stream: Stream) -> None:
        assert stream.trailers is not None
        block = stream.trailers if stream.headers_sent else ANSWER_HEADERS + stream.trailers
        self._send_block(stream, block, frames.END_STREAM)
        self._finish(stream)

    def _send_block(self, stream: Stream, block: bytes, flags: int) -> None:
        if len(block) <= self._max_frame:
            self._write((frames.frame(frames.HEADERS, flags | frames.END_HEADERS, stream.number, block),))
            return
        pieces = [block[i : i + self._max_frame] for i in range(0, len(block), self._max_frame)]
        self._write((frames.frame(frames.HEADERS, flags, stream.number, pieces[0]),))
        for piece in pieces[1:]:
            last = frames.END_HEADERS if piece is pieces[-1] else 0
            self._write((frames.frame(frames.CONTINUATION, last, stream.number, piece),))

    def _send_held_back(self) -> None:
        """As far as the client's windows allow, the streams taking turns."""
        for _ in range(len(self._held_back)):
            if self._window <= 0:
                return
            stream = self._held_back.popleft()
            if stream.ended:
                continue
            self._send_pending(stream)
            if stream.pending:
                self._held_back.append(stream)
            elif stream.trailers is not None:
                self._send_trailers(stream)

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
            self._write(parts)

    def _finish(self, stream: Stream) -> None:
        stream.ended = True
        stream.on_cancel = None
        self.streams.pop(stream.number, None)
        if not stream.half_closed:
            # It need not send the rest of its request.
            self._write((frames.reset(stream.number, frames.NO_ERROR),))
        if self._draining:
            self._close_if_drained()

    def _cancel(self, stream: Stream) -> None:
        """Nobody waits for the answer any more."""
        self.streams.pop(stream.number, None)
        stream.ended = True
        stream.pending.clear()
        if not stream.half_closed and not stream.is_streaming:
            self._incomplete_bytes -= stream.received_bytes
        on_cancel, stream.on_cancel = stream.on_cancel, None
        if on_cancel is not None:
            self._left.append(on_cancel)
        if self._draining:
            self._close_if_drained()

    def _write(self, parts: Sequence[bytes | memoryview]) -> None:
        if self.lost:
            return
        sent = 0
        if not self._unsent:
            try:
                sent = self.socket.sendmsg(parts)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                # The poller will read the same, and end the calls under way.
                self._lose()
                return
        before = bool(self._unsent)
        for part in parts:
            size = len(part)
            if sent >= size:
                sent -= size
                continue
            rest = memoryview(part)[sent:]
            sent = 0
            self._unsent.append(rest)
            self._unsent_bytes += len(rest)
        if self._unsent and not before:
            self._wants_writing(self, True)

    def flush(self) -> None:
        """The socket takes more again."""
        with self._lock:
            while self._unsent and not self.lost:
                parts = [self._unsent[i] for i in range(min(len(self._unsent), 64))]
                try:
                    sent = self.socket.sendmsg(parts)
                except (BlockingIOError, InterruptedError):
                    break
                except OSError:
                    self._lose()
                    return
                self._unsent_bytes -= sent
                while sent:
                    first = self._unsent[0]
                    if sent < len(first):
                        self._unsent[0] = memoryview(first)[sent:]
                        break
                    sent -= len(first)
                    self._unsent.popleft()
            if not self._unsent:
                self._wants_writing(self, False)
                if self._draining:
                    self._close_if_drained()

    # --- how it ends ------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Tell the client to open no more calls here; close when those under way have ended."""
        with self._lock:
            opening = frames.go_away(frames.LARGEST_WINDOW, frames.NO_ERROR, "the server is stopping")
            self._write((opening, frames.frame(frames.PING, 0, 0, _DRAIN_PING)))

    def close(self) -> None:
        """At once; calls under way are told that their client is gone."""
        with self._lock:
            self._cancel_all()
        self._tell_left()

    def _cancel_all(self) -> None:
        self._lose()
        for stream in list(self.streams.values()):
            self._cancel(stream)

    def _tell_left(self) -> None:
        """Without the lock: who hears of it may have locks of his own."""
        while self._left:
            self._left.pop()()

    def _close_if_drained(self) -> None:
        if not self.streams and not self._unsent:
            self._lose()

    def _lose(self) -> None:
        """The poller sees the end of it and forgets the connection."""
        if not self.lost:
            self.lost = True
            self._unsent.clear()
            self._unsent_bytes = 0
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


def _connection_window(limits: Limits) -> int:
    """So that no call waits for another's window."""
    return min(frames.LARGEST_WINDOW, max(_INCOMPLETE_MESSAGES * limits.max_message_bytes, 4 * _WINDOW_STEP))


def _peer(sock: socket.socket) -> str:
    """As gRPC writes addresses."""
    try:
        address = sock.getpeername()
    except OSError:
        return "unknown"
    return f"ipv{6 if sock.family == socket.AF_INET6 else 4}:{address[0]}:{address[1]}"


def _unpadded(payload: memoryview) -> memoryview:
    padding = payload[0] if payload else 0
    if not payload or padding >= len(payload):
        raise ConnectionFault("a frame is all padding")
    return payload[1 : len(payload) - padding]


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
