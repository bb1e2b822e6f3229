"""Handles a client's frames: one handler per kind of frame.

Shortcuts keep the hot path cheap: a request of one message is reported once, when it is complete; frames are tuples;
and frames that open a stream, or are on an open one, skip the table of states.
"""

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Generic

from ghostless.contract import http2_frames as frames
from serving.http2.budget import Budget, no_time
from serving.http2.errors import Closing, ConnectionFault, StreamFault
from serving.http2.events import AnyStream, CallCancelled, Event, RequestContinued, RequestReceived, RequestTooLarge
from serving.http2.frame_reader import FrameReader
from serving.http2.headers import ANSWER_HEADERS, HeadReader, RequestHead, http_error, trailers
from serving.http2.limits import Limits
from serving.http2.memory import ClientMemory
from serving.http2.sender import Pieces, Sender
from serving.http2.states import ConnectionState, StreamHistory, StreamState, accepts
from serving.http2.stream import MessageTooLargeError
from serving.http2.uploads import Uploads

# Looked up once: accessing a member of an enumeration through its class costs five times as much.
_OPEN, _HALF_CLOSED, _CLOSED = StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE, StreamState.CLOSED
_EXPECTS_SETTINGS, _READY = ConnectionState.EXPECTS_SETTINGS, ConnectionState.OPEN
_DRAINING, _ENDED = ConnectionState.DRAINING, ConnectionState.ENDED
DRAIN_PING = b"draining"
# gRPC's number of the status.
_RESOURCE_EXHAUSTED = 8
# A call that the server has to reset costs more than the frame that caused it.
RESET_COST = 2


class Incoming(Generic[AnyStream]):
    def __init__(
        self,
        limits: Limits,
        unary: Collection[str],
        stream_type: type[AnyStream],
        memory: ClientMemory | None = None,
        clock: Callable[[], float] = no_time,
    ) -> None:
        """`unary`: methods whose request is one message and is reported once it is complete. All others are reported as
        soon as their headers have arrived, so that a streaming client learns immediately that a method is unknown.
        `stream_type`: class of the streams. `memory`: shared by all connections of the process. `clock`: a monotonic
        clock."""
        self._limits = limits
        self._unary = unary
        self._stream_type = stream_type
        self.streams: dict[int, AnyStream] = {}
        self.state: ConnectionState = _EXPECTS_SETTINGS
        # Why the connection ended, if the client caused it.
        self.fault: ConnectionFault | None = None
        memory = memory or ClientMemory(limits)
        self._memory = memory
        self._budget = Budget(limits, clock)
        self._history = StreamHistory(limits)
        self.reader = FrameReader(limits, self._budget)
        self._heads = HeadReader(limits, self._budget)
        self._uploads = Uploads(limits, memory)
        self._used_window = 0
        self._stream_window = limits.stream_window
        self._small_data = limits.small_data_bytes
        self._events: list[Event[AnyStream]] = []
        # Bytes to send; `take_outgoing` empties it.
        self.outgoing: Pieces = []
        self._sender: Sender[AnyStream] = Sender(self.outgoing, self._budget, memory)

    def _begin(self) -> None:
        """Send SETTINGS after the client's preface; not earlier, so that an HTTP/1.1 client can read its response."""
        limits = self._limits
        ours = {
            frames.MAX_CONCURRENT_STREAMS: limits.max_streams,
            frames.INITIAL_WINDOW_SIZE: self._stream_window,
            frames.MAX_FRAME_SIZE: limits.max_frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: limits.max_header_bytes,
        }
        self.outgoing.append(frames.settings(ours))
        self.outgoing.append(frames.window_update(limits.connection_window - frames.DEFAULT_WINDOW))
        self.state = _READY

    def _accepts(self, kind: int, number: int, stream: AnyStream | None) -> bool:
        """Look up the frame in the table of states: True to accept it, False to discard it; or raises a fault."""
        return accepts(self._history.state(number, self.state) if stream is None else stream.state, kind, number)

    def _on_headers(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        stream = self.streams.get(number)
        block = bytes(payload)
        # Every block must be read, because later ones refer to the table.
        if stream is None:
            head = self._heads.known.get(block) or self._read_head(block)
            if (number > self._history.last and self.state is _READY) or self._accepts(frames.HEADERS, number, None):
                self._open(flags, number, head)
            return
        self._budget.spend(1)
        malformed = self._heads.read_trailers(block)
        self.reader.extra_work = self._heads.work
        if stream.state is not _OPEN:
            self._accepts(frames.HEADERS, number, stream)
        if malformed or not flags & frames.END_STREAM:
            raise StreamFault(malformed or "trailers without END_STREAM")
        self._half_close(stream)

    def _read_head(self, block: bytes) -> RequestHead:
        head = self._heads.read(block)
        self.reader.extra_work = self._heads.work
        return head

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
            self._refuse(flags, number, http_error(head.http_status, head.problem))
            return
        if head.size > self._limits.max_header_bytes:
            self._exhausted(flags, number, f"headers are larger than {self._limits.max_header_bytes} bytes")
            return
        if self._sender.held_bytes and not self._memory.has_room(self._sender.held_bytes):
            self._exhausted(flags, number, "too many answers on this connection were not read")
            return
        stream = self._stream_type(number, head, head.path not in self._unary, self._stream_window)
        self.streams[number] = stream
        if head.encoding != "identity":
            self.reader.extra_work = self._limits.turn_work  # even a small message may take long to decompress
        if stream.is_streaming:
            self._events.append(RequestReceived(stream))
        if flags & frames.END_STREAM:
            # A gRPC call has a message; this cancels the refill that its end would give.
            self._budget.spend(self._budget.refill + 1)
            self._half_close(stream)

    def _exhausted(self, flags: int, number: int, why: str) -> None:
        self._refuse(flags, number, ANSWER_HEADERS + trailers(_RESOURCE_EXHAUSTED, why))

    def _refuse(self, flags: int, number: int, block: bytes) -> None:
        """Respond without creating a call."""
        self._budget.spend(RESET_COST)
        self._sender.send_block(number, block, frames.END_STREAM)
        if not flags & frames.END_STREAM:
            self._reset(number, frames.NO_ERROR)

    def _on_data(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        # Also counted on closed streams (section 5.1).
        self._used_window += length
        if self._used_window >= self._limits.window_step:
            self.outgoing.append(frames.window_update(self._used_window))
            self._used_window = 0
        stream = self.streams.get(number)
        if stream is None or stream.state is not _OPEN:
            self._budget.spend(1)
            self._accepts(frames.DATA, number, stream)
            return
        stream.window -= length
        if stream.window < 0:
            raise StreamFault("more data than the stream's window", frames.FLOW_CONTROL_ERROR)
        if stream.body_left is not None:
            stream.body_left -= len(payload)
            if stream.body_left < 0:
                raise StreamFault("request body is longer than its content-length")
        if flags & frames.END_STREAM:
            self._half_close(stream)
            if not stream.is_refused:
                stream.take(payload)
            return
        if len(payload) < self._small_data:
            self._budget.spend(1)
        if stream.is_streaming:
            stream.take(payload)
            # Its messages are consumed as they arrive, so its window is reopened.
            if length:
                stream.window += length
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
        budget = self._budget
        budget.left -= 1
        if budget.left < 0:
            budget.spend(0)
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
        self._budget.spend(1)
        if length > self._limits.max_settings * frames.SETTING_BYTES:
            raise ConnectionFault("too many settings in one frame", frames.ENHANCE_YOUR_CALM, Closing.FLOOD)
        if not flags & frames.ACK:
            for name, value in frames.parse_settings(payload):
                self._sender.take_setting(name, value, self.streams.values())
            self.outgoing.append(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _on_ping(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        self._budget.spend(1)
        if not flags & frames.ACK:
            self.outgoing.append(frames.frame(frames.PING, frames.ACK, 0, bytes(payload)))
        elif payload == DRAIN_PING:
            # The client has read the first GOAWAY, so it opens no more streams than those seen by now.
            self.state = _DRAINING
            self.outgoing.append(frames.go_away(self._history.last, frames.NO_ERROR))

    def _on_reset(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        self._budget.spend(1)
        stream = self.streams.get(number)
        if self._accepts(frames.RST_STREAM, number, stream) and stream is not None:
            self._cancel(stream, _CLOSED)

    def _ignore(self, flags: int, number: int, payload: memoryview, length: int) -> None:
        """PRIORITY is ignored; after a client's GOAWAY, its calls in progress continue."""
        self._budget.spend(1)

    def _reset(self, number: int, code: int) -> None:
        self.outgoing.append(frames.reset(number, code))
        self._history.reset_by_server(number)
        stream = self.streams.get(number)
        if stream is not None:
            self._cancel(stream, StreamState.RESET_BY_SERVER)

    def _finish(self, stream: AnyStream) -> None:
        """The response of the stream has been sent."""
        del self.streams[stream.number]
        budget = self._budget
        if stream.state is not _OPEN:
            stream.state = _CLOSED
            if stream.cost:
                budget.left -= stream.cost
            elif budget.left < budget.most:
                budget.left += budget.refill
            if stream.is_faulty:
                budget.count_faulty_call()
            return
        budget.left -= RESET_COST  # this thread can't end the connection; the next frame does
        self._uploads.release(stream)
        stream.state = StreamState.RESET_BY_SERVER
        # The client need not send the rest of its request.
        self._reset(stream.number, frames.NO_ERROR)

    def _cancel(self, stream: AnyStream, state: StreamState) -> None:
        """The call was cancelled: its response is no longer needed."""
        del self.streams[stream.number]
        self._uploads.release(stream)
        stream.state = state
        self._sender.forget(stream)
        self._events.append(CallCancelled(stream))

    def _end(self) -> None:
        self.state = _ENDED
        self.reader.has_more = False
        for stream in list(self.streams.values()):
            self._cancel(stream, StreamState.CLOSED)

    # All kinds that FrameReader returns.
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
