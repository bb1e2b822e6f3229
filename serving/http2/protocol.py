"""One client's connection, server side, without its socket: bytes in, events out; answers in, bytes out.

Not for two threads at once. Shortcuts keep the hot path cheap: a request of one message is reported once, when it is
whole; frames travel as tuples; frames that open a stream or come on an open one don't look at the table of states.
"""

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Generic

from ghostless.contract import http2_frames as frames
from serving.http2.errors import ConnectionFault, StreamFault
from serving.http2.events import AnyStream, CallCancelled, Event, RequestContinued, RequestReceived, RequestTooLarge
from serving.http2.frame_reader import FrameReader
from serving.http2.headers import HeadReader, RequestHead, http_error
from serving.http2.limits import Limits
from serving.http2.sender import Pieces, Sender
from serving.http2.states import ConnectionState, StreamHistory, StreamState, accepts
from serving.http2.stream import MessageTooLargeError
from serving.http2.uploads import Uploads

# Looked up here: as an attribute of its class, a member of an enumeration costs five times as much.
_OPEN, _HALF_CLOSED, _CLOSED = StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE, StreamState.CLOSED
_EXPECTS_SETTINGS, _READY = ConnectionState.EXPECTS_SETTINGS, ConnectionState.OPEN
_DRAINING, _ENDED = ConnectionState.DRAINING, ConnectionState.ENDED
_DRAIN_PING = b"draining"


class ServerProtocol(Generic[AnyStream]):
    def __init__(self, limits: Limits, unary: Collection[str], stream_type: type[AnyStream]) -> None:
        """`unary`: methods whose request is one message, and waits until it is whole. All others are reported from
        their first header on: a client that streams must not have to end its request to learn that the method is
        unknown. `stream_type`: what streams are made of."""
        self._limits = limits
        self._unary = unary
        self._stream_type = stream_type
        self.streams: dict[int, AnyStream] = {}
        self.state: ConnectionState = _EXPECTS_SETTINGS
        # Why the connection ended, where that was the client's fault.
        self.fault: ConnectionFault | None = None
        self._history = StreamHistory(limits)
        self._reader = FrameReader(limits)
        self._heads = HeadReader(limits)
        self._uploads = Uploads(limits)
        self._used_window = 0
        self._events: list[Event[AnyStream]] = []
        ours = {
            frames.MAX_CONCURRENT_STREAMS: limits.max_streams,
            frames.INITIAL_WINDOW_SIZE: limits.stream_window,
            frames.MAX_FRAME_SIZE: limits.max_frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: limits.max_header_bytes,
        }
        window = frames.window_update(limits.connection_window - frames.DEFAULT_WINDOW)
        # To be sent; `take_outgoing` empties it.
        self.outgoing: Pieces = [frames.settings(ours), window]
        self._sender: Sender[AnyStream] = Sender(self.outgoing)

    @property
    def has_events(self) -> bool:
        """A call was aborted since the last read."""
        return bool(self._events)

    @property
    def is_drained(self) -> bool:
        """The client was told to leave, and has no call under way."""
        return self.state is _DRAINING and not self.streams

    def receive(self, data: memoryview) -> list[Event[AnyStream]]:
        """What `data` brought, and what happened since the last read. `data` may be used again afterwards."""
        if self.state is _ENDED:
            return []
        on_frame = self._ON_FRAME
        try:
            for kind, flags, number, payload, length in self._reader.read(data):
                if self.state is _EXPECTS_SETTINGS:
                    if kind != frames.SETTINGS or flags & frames.ACK:
                        raise ConnectionFault("the first frame must be SETTINGS")
                    self.state = _READY
                try:
                    on_frame[kind](self, flags, number, payload, length)
                except StreamFault as fault:
                    self._reset(number, fault.code)
            if self._sender.needs_resume:
                for stream in self._sender.resume():
                    self._finish(stream)
        except ConnectionFault as fault:
            self.fault = fault
            self.outgoing.append(frames.go_away(self._history.last, fault.code, str(fault)))
            self._end()
        events, self._events = self._events, []
        return events

    def take_events(self) -> list[Event[AnyStream]]:
        """What happened since the last read: a call that `reset` or `send` aborted."""
        events, self._events = self._events, []
        return events

    def take_outgoing(self) -> Pieces:
        """The bytes to send now, in pieces."""
        out = self.outgoing.copy()
        self.outgoing.clear()
        return out

    def answer(self, stream: AnyStream, message: bytes) -> None:
        """The one message of a call that succeeded; nothing if nobody waits for it."""
        if not stream.is_over and self._sender.answer(stream, message):
            self._finish(stream)

    def send(self, stream: AnyStream, message: bytes) -> bool:
        """One message of an answer; False if nobody waits for it."""
        if len(stream.pending) > self._limits.max_held_back_pieces:
            self.reset(stream, frames.ENHANCE_YOUR_CALM)
        if stream.is_over:
            return False
        self._sender.send(stream, message)
        return True

    def end(self, stream: AnyStream, trailers: bytes) -> None:
        """With this block, after the messages that were sent; nothing if the call has ended."""
        if not stream.is_over and self._sender.end(stream, trailers):
            self._finish(stream)

    def reset(self, stream: AnyStream, code: int) -> None:
        """Abort the call."""
        if not stream.ended:
            self._reset(stream.number, code)

    def drain(self) -> None:
        """Tell the client to open no more calls here. Its answer to the PING says that it has read so."""
        self.outgoing.append(frames.go_away(frames.LARGEST_WINDOW, frames.NO_ERROR, "the server is stopping"))
        self.outgoing.append(frames.frame(frames.PING, 0, 0, _DRAIN_PING))

    def lose(self) -> list[Event[AnyStream]]:
        """The connection is gone; every call under way is cancelled."""
        self._end()
        return self.take_events()

    def _accepts(self, kind: int, number: int, stream: AnyStream | None) -> bool:
        """What the table of states says to the frame: True, False to discard it, or a fault."""
        return accepts(self._history.state(number, self.state) if stream is None else stream.state, kind, number)

    def _on_headers(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        stream = self.streams.get(number)
        block = bytes(payload)
        # Every block must be read, for the table that later ones refer to.
        if stream is None:
            head = self._heads.known.get(block) or self._heads.read(block)
            if (number > self._history.last and self.state is _READY) or self._accepts(frames.HEADERS, number, None):
                self._open(flags, number, head)
            return
        malformed = self._heads.read_trailers(block)
        if stream.state is not _OPEN:
            self._accepts(frames.HEADERS, number, stream)
        if malformed or not flags & frames.END_STREAM:
            raise StreamFault(malformed or "trailers without END_STREAM")
        self._half_close(stream)

    def _open(self, flags: int, number: int, head: RequestHead) -> None:
        if not number % 2:
            raise ConnectionFault(f"client stream ids must be odd, got {number}")
        if number > self._history.last + 2:
            self._history.skip_to(number)
        self._history.last = number
        if head.malformed:
            raise StreamFault(head.malformed)
        if len(self.streams) >= self._limits.max_streams:
            raise StreamFault("too many concurrent streams", frames.REFUSED_STREAM)
        if head.http_status != 200:
            self._sender.send_block(number, http_error(head.http_status, head.problem), frames.END_STREAM)
            if not flags & frames.END_STREAM:
                self._reset(number, frames.NO_ERROR)
            return
        stream = self._stream_type(number, head, head.path not in self._unary)
        self.streams[number] = stream
        if stream.is_streaming:
            self._events.append(RequestReceived(stream))
        if flags & frames.END_STREAM:
            self._half_close(stream)

    def _on_data(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        # Counted on closed streams too (section 5.1).
        self._used_window += length
        if self._used_window >= self._limits.window_step:
            self.outgoing.append(frames.window_update(self._used_window))
            self._used_window = 0
        stream = self.streams.get(number)
        if stream is None or stream.state is not _OPEN:
            self._accepts(frames.DATA, number, stream)
            return
        if stream.body_left is not None:
            stream.body_left -= len(payload)
            if stream.body_left < 0:
                raise StreamFault("request body is longer than its content-length")
        if flags & frames.END_STREAM:
            self._half_close(stream)
            if not stream.is_refused:
                stream.take(payload)
        elif stream.is_streaming:
            stream.take(payload)
            # Its messages are taken as they come, so its window is opened again.
            if length:
                self.outgoing.append(frames.window_update(length, number))
            self._events.append(RequestContinued(stream))
        elif not stream.is_refused:
            try:
                self._uploads.take(stream, payload)
            except MessageTooLargeError as error:
                self._events.append(RequestTooLarge(stream, error))

    def _half_close(self, stream: AnyStream) -> None:
        if stream.body_left:
            raise StreamFault("request body is shorter than its content-length")
        if self._uploads.held_bytes:
            self._uploads.release(stream)
        stream.state = _HALF_CLOSED
        if stream.is_streaming:
            self._events.append(RequestContinued(stream))
        elif not stream.is_refused:
            self._events.append(RequestReceived(stream))

    def _on_window_update(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        increment = int.from_bytes(payload) & frames.LARGEST_WINDOW
        if not number:
            if not increment:
                raise ConnectionFault("WINDOW_UPDATE with an increment of 0 on the connection")
            self._sender.open_window(increment)
            return
        stream = self.streams.get(number)
        if stream is None:
            self._accepts(frames.WINDOW_UPDATE, number, None)
            return
        if not increment:
            raise StreamFault("WINDOW_UPDATE with an increment of 0 on a stream")
        if self._sender.open_stream_window(stream, increment):
            self._finish(stream)

    def _on_settings(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        if not flags & frames.ACK:
            for name, value in frames.parse_settings(payload):
                self._sender.take_setting(name, value, self.streams.values())
            self.outgoing.append(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _on_ping(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        if not flags & frames.ACK:
            self.outgoing.append(frames.frame(frames.PING, frames.ACK, 0, bytes(payload)))
        elif payload == _DRAIN_PING:
            # The client has read the first GOAWAY, so what it still opens comes after the streams seen by now.
            self.state = _DRAINING
            self.outgoing.append(frames.go_away(self._history.last, frames.NO_ERROR))

    def _on_reset(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        stream = self.streams.get(number)
        if self._accepts(frames.RST_STREAM, number, stream) and stream is not None:
            self._cancel(stream, _CLOSED)

    def _ignore(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        """PRIORITY says nothing to this server; after a client's GOAWAY its calls under way go on."""

    def _reset(self, number: int, code: int) -> None:
        self.outgoing.append(frames.reset(number, code))
        self._history.reset_by_server(number)
        stream = self.streams.get(number)
        if stream is not None:
            self._cancel(stream, StreamState.RESET_BY_SERVER)

    def _finish(self, stream: AnyStream) -> None:
        """Its answer has gone out."""
        del self.streams[stream.number]
        if stream.state is not _OPEN:
            stream.state = _CLOSED
            return
        self._uploads.release(stream)
        stream.state = StreamState.RESET_BY_SERVER
        # The client need not send the rest of its request.
        self._reset(stream.number, frames.NO_ERROR)

    def _cancel(self, stream: AnyStream, state: StreamState) -> None:
        """Nobody waits for the answer any more."""
        del self.streams[stream.number]
        self._uploads.release(stream)
        stream.state = state
        stream.pending.clear()
        self._sender.forget(stream)
        self._events.append(CallCancelled(stream))

    def _end(self) -> None:
        self.state = _ENDED
        for stream in list(self.streams.values()):
            self._cancel(stream, StreamState.CLOSED)

    # Every kind that FrameReader lets through.
    _ON_FRAME: ClassVar[dict[int, Callable[[Any, int, int, memoryview, int], None]]] = {
        frames.DATA: _on_data,
        frames.HEADERS: _on_headers,
        frames.PRIORITY_FRAME: _ignore,
        frames.RST_STREAM: _on_reset,
        frames.SETTINGS: _on_settings,
        frames.PING: _on_ping,
        frames.GOAWAY: _ignore,
        frames.WINDOW_UPDATE: _on_window_update,
    }
