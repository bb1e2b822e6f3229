"""One client's connection, server side: frames in, calls out; answers in, frames out.

`receive` is called by the thread that polls, one thread at a time. Answers may come from any thread, so what both
touch is guarded by the connection's lock. Nothing here waits: what the socket or the client's windows don't take now is
kept, and goes out when they do.
"""

import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from ghostless.contract import http2_frames as frames
from serving.http2.errors import ConnectionFault
from serving.http2.frame_reader import MAX_FRAME, FrameReader
from serving.http2.headers import MAX_HEADER_BYTES, HeadReader, http_error
from serving.http2.limits import WINDOW_STEP, Limits
from serving.http2.outgoing import Outgoing
from serving.http2.sender import Sender
from serving.http2.stream import MessageTooLargeError, Stream

# Pieces of a streamed answer that may wait for the client's window.
_MOST_HELD_BACK = 256
_DRAIN_PING = b"draining"


class Connection:
    """`on_write_interest` is called when the socket's buffer is full, or no longer."""

    def __init__(
        self,
        sock: socket.socket,
        limits: Limits,
        on_write_interest: Callable[["Connection"], None],
        on_too_large: Callable[[Stream, MessageTooLargeError], None],
        unary: Collection[str],
    ) -> None:
        """`unary`: methods whose request is one message, and waits until it is whole. All others are taken from their
        first header on: a client that streams must not have to end its request to learn that the method is unknown."""
        sock.setblocking(False)
        self.socket = sock
        self.fd = sock.fileno()
        self.peer = _peer(sock)
        self._limits = limits
        self._outgoing = Outgoing(sock, lambda: on_write_interest(self))
        self._sender = Sender(self._outgoing, self._finished)
        self._on_too_large = on_too_large
        self._unary = unary
        # To be called once the lock is free: their clients left.
        self._cancelled_callbacks: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._heads = HeadReader()
        self.streams: dict[int, Stream] = {}
        self._last_stream = 0
        self._draining = False
        self._reader = FrameReader()
        self._incomplete_bytes = 0
        self._used_window = 0
        self._opened: list[Stream] = []
        opening = frames.settings(
            {
                frames.MAX_CONCURRENT_STREAMS: limits.max_streams,
                frames.INITIAL_WINDOW_SIZE: limits.stream_window,
                frames.MAX_FRAME_SIZE: MAX_FRAME,
                frames.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
            }
        )
        with self._lock:
            self._outgoing.write(opening + frames.window_update(limits.connection_window - frames.DEFAULT_WINDOW))

    @property
    def lost(self) -> bool:
        """Of no use any more; who polls it should forget it."""
        return self._outgoing.lost

    @property
    def has_unsent(self) -> bool:
        return not self._outgoing.is_empty

    @property
    def is_choked(self) -> bool:
        """So much is unsent that nothing more should be read."""
        return self._outgoing.is_choked

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
        with self._lock:
            try:
                for kind, flags, number, payload, length in self._reader.read(buffer[:size]):
                    if kind == frames.DATA:
                        self._on_data(flags, number, payload, length)
                    elif kind == frames.HEADERS:
                        self._on_headers(flags, number, bytes(payload))
                    elif kind == frames.WINDOW_UPDATE:
                        self._on_window_update(number, payload)
                    else:
                        self._on_other(kind, flags, number, bytes(payload))
            except ConnectionFault as error:
                self._outgoing.write(frames.go_away(self._last_stream, error.code, str(error)))
                self._opened.clear()
                self._cancel_all()
            opened, self._opened = self._opened, []
        self._notify_cancelled()
        return opened

    def _on_headers(self, flags: int, number: int, block: bytes) -> None:
        # Every block must be read, for the table that later ones refer to.
        head = self._heads.read(block)
        stream = self.streams.get(number)
        if stream is not None:
            if stream.half_closed:
                raise ConnectionFault(f"HEADERS on stream {number} after its end", frames.STREAM_CLOSED)
            # Trailers of the client's; gRPC has none that matter, but they end its request.
            if flags & frames.END_STREAM:
                self._half_close(stream)
            return
        if not number % 2:
            raise ConnectionFault(f"a client's streams have odd numbers, {number} came")
        if number <= self._last_stream:
            return  # of a stream that has ended already
        if self._draining:
            self._outgoing.write(frames.reset(number, frames.REFUSED_STREAM))
            return
        self._last_stream = number
        if len(self.streams) >= self._limits.max_streams:
            self._outgoing.write(frames.reset(number, frames.REFUSED_STREAM))
            return
        stream = Stream(self, number, head, self._sender.stream_window, head.path not in self._unary)
        if head.http_status != 200:
            self._sender.send_block(stream, http_error(head.http_status, head.problem), frames.END_STREAM)
            return
        self.streams[number] = stream
        if stream.is_streaming:
            self._opened.append(stream)
        if flags & frames.END_STREAM:
            self._half_close(stream)

    def _on_data(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        self._used_window += length
        if self._used_window >= WINDOW_STEP:
            self._outgoing.write(frames.window_update(self._used_window))
            self._used_window = 0
        stream = self.streams.get(number)
        if stream is None:
            self._check_ended(number)
            return
        if stream.half_closed:
            raise ConnectionFault(f"DATA on stream {number} after its end", frames.STREAM_CLOSED)
        stream.take(payload)
        if not stream.is_streaming:
            self._incomplete_bytes += len(payload)
        if flags & frames.END_STREAM:
            self._half_close(stream)
            return
        if stream.is_streaming:
            # Its messages are taken as they come, so its window is opened again.
            if length:
                self._outgoing.write(frames.window_update(length, number))
            if stream.on_data is not None:
                stream.on_data()
            return
        try:
            stream.check_size(self._limits.max_message_bytes)
            if self._incomplete_bytes > self._limits.incomplete_bytes:
                raise MessageTooLargeError("too many large requests under way on one connection")
        except MessageTooLargeError as error:
            self._incomplete_bytes -= stream.received_bytes
            self._on_too_large(stream, error)

    def _half_close(self, stream: Stream) -> None:
        stream.half_closed = True
        if not stream.is_streaming:
            self._incomplete_bytes -= stream.received_bytes
            self._opened.append(stream)
        elif stream.on_data is not None:
            stream.on_data()

    def _on_window_update(self, number: int, payload: memoryview) -> None:
        increment = int.from_bytes(payload) & frames.LARGEST_WINDOW
        if not increment:
            raise ConnectionFault("a WINDOW_UPDATE by nothing")
        if not number:
            self._sender.open_window(increment)
            return
        stream = self.streams.get(number)
        if stream is None:
            self._check_ended(number)
        elif not self._sender.open_stream_window(stream, increment):
            self.reset(stream, frames.FLOW_CONTROL_ERROR)

    def _on_other(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == frames.SETTINGS:
            if not flags & frames.ACK:
                self._sender.take_settings(frames.parse_settings(payload), self.streams.values())
        elif kind == frames.PING:
            self._on_ping(flags, payload)
        elif kind == frames.RST_STREAM:
            stream = self.streams.get(number)
            if stream is not None:
                self._cancel(stream)
            else:
                self._check_ended(number)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault("clients don't push")
        # GOAWAY: the client opens no more streams, those under way go on. PRIORITY and unknown kinds say nothing to us.

    def _check_ended(self, number: int) -> None:
        """Of a stream that is not there: its call has ended or was refused, and the client may not know yet."""
        if not number or (number > self._last_stream and not self._draining):
            raise ConnectionFault(f"a frame on stream {number}, which nobody opened")

    def _on_ping(self, flags: int, payload: bytes) -> None:
        if not flags & frames.ACK:
            self._outgoing.write(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif payload == _DRAIN_PING:
            # The client has read the first GOAWAY, so what it still opens comes after the streams seen by now.
            self._draining = True
            self._outgoing.write(frames.go_away(self._last_stream, frames.NO_ERROR))
            self._close_if_drained()

    def answer(self, stream: Stream, message: bytes) -> None:
        """The one message of a call that succeeded; nothing if nobody waits for it."""
        with self._lock:
            if not stream.is_over:
                self._sender.answer(stream, message)

    def send(self, stream: Stream, message: bytes) -> bool:
        """One message of an answer; False if nobody waits for it."""
        with self._lock:
            if len(stream.pending) > _MOST_HELD_BACK:
                self.reset(stream, frames.ENHANCE_YOUR_CALM)
            if stream.is_over:
                return False
            self._sender.send(stream, message)
            return True

    def end(self, stream: Stream, trailers: bytes) -> None:
        """With this block, after the messages that were sent; nothing if the call has ended."""
        with self._lock:
            if not stream.is_over:
                self._sender.end(stream, trailers)

    @contextmanager
    def corked(self) -> Iterator[None]:
        """What is written meanwhile goes out together at the end."""
        with self._lock:
            self._outgoing.cork()
        try:
            yield
        finally:
            with self._lock:
                self._outgoing.uncork()
                self._close_if_drained()

    def reset(self, stream: Stream, code: int) -> None:
        """Abort the call. The handler is notified after the next read, because it may be the caller."""
        with self._lock:
            if not stream.ended:
                self._outgoing.write(frames.reset(stream.number, code))
                self._cancel(stream)

    def flush(self) -> None:
        """The socket takes more again."""
        with self._lock:
            self._outgoing.flush()
            self._close_if_drained()

    def _finished(self, stream: Stream) -> None:
        stream.ended = True
        stream.on_cancelled = None
        self.streams.pop(stream.number, None)
        if not stream.half_closed:
            # It need not send the rest of its request.
            self._outgoing.write(frames.reset(stream.number, frames.NO_ERROR))
        self._close_if_drained()

    def _cancel(self, stream: Stream) -> None:
        """Nobody waits for the answer any more."""
        self.streams.pop(stream.number, None)
        stream.ended = True
        stream.pending.clear()
        self._sender.forget(stream)
        if not stream.half_closed and not stream.is_streaming:
            self._incomplete_bytes -= stream.received_bytes
        on_cancelled, stream.on_cancelled = stream.on_cancelled, None
        if on_cancelled is not None:
            self._cancelled_callbacks.append(on_cancelled)
        self._close_if_drained()

    def drain(self) -> None:
        """Tell the client to open no more calls here; close when those under way have ended."""
        with self._lock:
            opening = frames.go_away(frames.LARGEST_WINDOW, frames.NO_ERROR, "the server is stopping")
            self._outgoing.write(opening, frames.frame(frames.PING, 0, 0, _DRAIN_PING))

    def close(self) -> None:
        """At once; calls under way are notified that their client is gone."""
        with self._lock:
            self._cancel_all()
        self._notify_cancelled()

    def release(self) -> None:
        """Once nobody polls it. What it calls back refers to it, and with all that it has read it would wait for the
        garbage collector."""
        with self._lock:
            self._outgoing.on_change = _nothing
            self._sender.on_finished = _nothing

    def _cancel_all(self) -> None:
        self._outgoing.lose()
        for stream in list(self.streams.values()):
            self._cancel(stream)

    def _notify_cancelled(self) -> None:
        """Without the lock: a callback may take locks of its own."""
        if self._cancelled_callbacks:
            with self._lock:  # one thread may be reading while another closes
                callbacks, self._cancelled_callbacks = self._cancelled_callbacks, []
            for on_cancelled in callbacks:
                on_cancelled()

    def _close_if_drained(self) -> None:
        if self._draining and not self.streams and self._outgoing.is_empty:
            self._outgoing.finish()


def _nothing(*_: object) -> None:
    pass


def _peer(sock: socket.socket) -> str:
    """As gRPC writes addresses."""
    try:
        address = sock.getpeername()
    except OSError:
        return "unknown"
    return f"ipv{6 if sock.family == socket.AF_INET6 else 4}:{address[0]}:{address[1]}"
