"""The server side of one connection, without its socket: bytes in, events out; responses in, bytes out.

Not safe for concurrent use. incoming.py handles the frames.
"""

from collections.abc import Callable, Collection

from ghostless.contract import http2_frames as frames
from serving.http2.budget import no_time
from serving.http2.client_timeouts import ClientTimeouts
from serving.http2.errors import Closing, ConnectionFault, StreamFault
from serving.http2.events import AnyStream, Event
from serving.http2.headers import ANSWER_HEADERS, trailers
from serving.http2.incoming import DRAIN_PING, RESET_COST, Incoming
from serving.http2.limits import Limits
from serving.http2.memory import ClientMemory
from serving.http2.sender import Pieces
from serving.http2.states import ConnectionState, StreamState

_EXPECTS_SETTINGS = ConnectionState.EXPECTS_SETTINGS
_DRAINING, _ENDED = ConnectionState.DRAINING, ConnectionState.ENDED
# gRPC's number of the status.
_DEADLINE_EXCEEDED = 4
# Cost of a call whose request was not finished, or whose response was not read: a client with 1000 of them is
# disconnected.
_STALLED_COST = 32
# Memory of a call in progress, in addition to its headers and messages.
_STREAM_BYTES = 1500


class ServerProtocol(Incoming[AnyStream]):
    def __init__(
        self,
        limits: Limits,
        unary: Collection[str],
        stream_type: type[AnyStream],
        memory: ClientMemory | None = None,
        clock: Callable[[], float] = no_time,
    ) -> None:
        """As in `Incoming`; `clock` is also used by `check_time`."""
        super().__init__(limits, unary, stream_type, memory, clock)
        self._timeouts = ClientTimeouts(limits, clock())
        # Why the connection ends, if there is no error.
        self.leaves_because: Closing | None = None

    @property
    def has_events(self) -> bool:
        """Whether a call was aborted since the last read."""
        return bool(self._events)

    @property
    def is_drained(self) -> bool:
        """Whether the client was asked to close the connection, and no call is in progress."""
        return self.state is _DRAINING and not self.streams

    @property
    def held_bytes(self) -> int:
        """Approximate memory used by the client's calls."""
        calls = sum(_STREAM_BYTES + stream.head.held_bytes for stream in list(self.streams.values()))
        return self._uploads.held_bytes + self._sender.held_bytes + calls

    def receive(self, data: memoryview) -> list[Event[AnyStream]]:
        """Process `data`, up to the limit of a turn; returns its events and those since the last read. `data` may be
        reused afterwards. If `reader.has_more`, there is more to process, even without data."""
        if self.state is _ENDED:
            return []
        on_frame = self._ON_FRAME
        try:
            if self._budget.left < 0:
                self._budget.spend(0)  # a thread that answered a call may have spent the rest
            for kind, flags, number, payload, length in self.reader.read(data):
                if self.state is _EXPECTS_SETTINGS:
                    if kind != frames.SETTINGS or flags & frames.ACK:
                        raise ConnectionFault("the first frame must be SETTINGS")
                    self._begin()
                try:
                    on_frame[kind](self, flags, number, payload, length)
                except StreamFault as fault:
                    self._reset(number, fault.code)
                    self._budget.spend(RESET_COST)
            if self._sender.needs_resume:
                for stream in self._sender.resume():
                    self._finish(stream)
        except ConnectionFault as fault:
            self._fail(fault)
        events, self._events = self._events, []
        return events

    def check_time(self, now: float) -> list[Event[AnyStream]]:
        """Call this a few times a second: ends what takes too long; returns the events since the last read."""
        if self.state is _ENDED:
            return []
        timeouts, last = self._timeouts, self._history.last
        try:
            timeouts.check_frame(now, self.state is not _EXPECTS_SETTINGS, self.reader.waits_for)
            late = timeouts.late_streams(now, last)
            for stream in list(self.streams.values()) if late else ():
                if stream.number <= late and stream.state is StreamState.OPEN and not stream.is_streaming:
                    self._expire(stream)
            for number in timeouts.unread_streams(now, self._sender.held_back):
                self._reset(number, frames.ENHANCE_YOUR_CALM)
                self._budget.spend(_STALLED_COST)
            reason = timeouts.check_leaving(now, last, is_idle=not self.streams)
            if reason is not None:
                self.leaves_because = reason
                self.drain()
        except ConnectionFault as fault:
            self._fail(fault)
        return self.take_events()

    def _expire(self, stream: AnyStream) -> None:
        """End a call whose request is incomplete; it was never reported."""
        block = trailers(_DEADLINE_EXCEEDED, f"the request was not complete within {self._limits.body_s:g} s")
        self._sender.send_block(stream.number, ANSWER_HEADERS + block, frames.END_STREAM)
        self._finish(stream)
        self._budget.spend(_STALLED_COST)

    def fail(self, why: str, code: int, reason: Closing) -> list[Event[AnyStream]]:
        """End the connection for a reason other than the received bytes."""
        if self.state is not _ENDED:
            self._fail(ConnectionFault(why, code, reason))
        return self.take_events()

    def _fail(self, fault: ConnectionFault) -> None:
        # Its traceback refers to this object, and the cycle would have to wait for the garbage collector.
        fault.__traceback__ = fault.__context__ = fault.__cause__ = None
        self.fault = fault
        if fault.answer:
            self.outgoing.append(fault.answer)
        else:
            if self.state is _EXPECTS_SETTINGS:
                self._begin()
            self.outgoing.append(frames.go_away(self._history.last, fault.code, str(fault)))
        self._end()

    def take_events(self) -> list[Event[AnyStream]]:
        """Events since the last read: calls that `reset` or `send` aborted."""
        events, self._events = self._events, []
        return events

    def take_outgoing(self) -> Pieces:
        """The bytes to send, in pieces."""
        out = self.outgoing.copy()
        self.outgoing.clear()
        return out

    def answer(self, stream: AnyStream, message: bytes) -> None:
        """Send the only message of a successful call; does nothing if the call has ended."""
        if not stream.is_over and self._sender.answer(stream, message):
            self._finish(stream)

    def send(self, stream: AnyStream, message: bytes) -> bool:
        """Send one message of a response; returns False if the call has ended."""
        if len(stream.pending) > self._limits.max_held_back_pieces:
            self.reset(stream, frames.ENHANCE_YOUR_CALM)
        if stream.is_over:
            return False
        self._sender.send(stream, message)
        self._budget.earn(1)
        return True

    def end(self, stream: AnyStream, trailers: bytes) -> None:
        """End the response with these trailers, after the messages already sent; does nothing if the call has ended."""
        if not stream.is_over and self._sender.end(stream, trailers):
            self._finish(stream)

    def reset(self, stream: AnyStream, code: int) -> None:
        """Abort the call."""
        if not stream.ended:
            self._reset(stream.number, code)

    def drain(self) -> None:
        """Ask the client to open no more calls. The acknowledgement of a PING shows that it has read this."""
        if self.state is _EXPECTS_SETTINGS:
            self._begin()
        why = self.leaves_because or "the server is stopping"
        self.outgoing.append(frames.go_away(frames.LARGEST_WINDOW, frames.NO_ERROR, why))
        self.outgoing.append(frames.frame(frames.PING, 0, 0, DRAIN_PING))

    def lose(self) -> list[Event[AnyStream]]:
        """The connection was lost; cancel all calls in progress."""
        self._end()
        return self.take_events()
