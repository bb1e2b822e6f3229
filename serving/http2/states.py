"""The states of streams and connections (RFC 9113, section 5.1), and a table of the effect of each frame."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice

from ghostless.contract import http2_frames as frames
from serving.http2.errors import ConnectionFault, ProtocolFault, StreamFault
from serving.http2.limits import Limits


class ConnectionState(Enum):
    EXPECTS_SETTINGS = auto()  # the first frame after the preface (section 3.4)
    OPEN = auto()
    DRAINING = auto()  # the last GOAWAY is sent: calls in progress finish, new ones are rejected (section 6.8)
    ENDED = auto()


class StreamState(Enum):
    """State of a stream on the server. The server closes its own half with the response, and then resets a request that
    the client has not ended."""

    IDLE = auto()
    OPEN = auto()
    HALF_CLOSED_REMOTE = auto()  # the request is complete
    CLOSED = auto()  # the client knows, because it ended or reset the stream
    RESET_BY_SERVER = auto()  # closed, and the client may not know yet
    SKIPPED = auto()  # closed because a higher number was opened (section 5.1.1)
    AFTER_GOAWAY = auto()  # never to be opened


class Scope(Enum):
    ACCEPT = auto()
    DISCARD = auto()
    STREAM_ERROR = auto()
    CONNECTION_ERROR = auto()


@dataclass(frozen=True)
class Reaction:
    scope: Scope
    code: int = frames.NO_ERROR


_ACCEPT, _DISCARD = Reaction(Scope.ACCEPT), Reaction(Scope.DISCARD)
_UNOPENED = Reaction(Scope.CONNECTION_ERROR, frames.PROTOCOL_ERROR)
_AFTER_END = Reaction(Scope.CONNECTION_ERROR, frames.STREAM_CLOSED)
_HALF_CLOSED = Reaction(Scope.STREAM_ERROR, frames.STREAM_CLOSED)
_REFUSED = Reaction(Scope.STREAM_ERROR, frames.REFUSED_STREAM)

# PRIORITY is allowed in every state and ignored. Section 5.1 lets a server discard any frame on a closed stream, or end
# the connection if the client itself closed the stream; this server does the latter.
_COLUMNS = (frames.HEADERS, frames.DATA, frames.RST_STREAM, frames.WINDOW_UPDATE)
_TABLE = {
    #                                HEADERS       DATA          RST_STREAM  WINDOW_UPDATE
    StreamState.IDLE:               (_ACCEPT,      _UNOPENED,    _UNOPENED,  _UNOPENED),
    StreamState.OPEN:               (_ACCEPT,      _ACCEPT,      _ACCEPT,    _ACCEPT),
    StreamState.HALF_CLOSED_REMOTE: (_HALF_CLOSED, _HALF_CLOSED, _ACCEPT,    _ACCEPT),
    StreamState.CLOSED:             (_AFTER_END,   _AFTER_END,   _DISCARD,   _DISCARD),
    StreamState.RESET_BY_SERVER:    (_DISCARD,     _DISCARD,     _DISCARD,   _DISCARD),
    StreamState.SKIPPED:            (_UNOPENED,    _AFTER_END,   _DISCARD,   _DISCARD),
    StreamState.AFTER_GOAWAY:       (_REFUSED,     _DISCARD,     _DISCARD,   _DISCARD),
}  # fmt: skip
REACTIONS: Mapping[tuple[StreamState, int], Reaction] = {
    (state, kind): reaction for state, row in _TABLE.items() for kind, reaction in zip(_COLUMNS, row, strict=True)
}


def accepts(state: StreamState, kind: int, number: int) -> bool:
    """True to accept the frame, False to discard it; or raises a fault."""
    reaction = REACTIONS[state, kind]
    if reaction.scope is Scope.ACCEPT:
        return True
    if reaction.scope is Scope.DISCARD:
        return False
    raised: type[ProtocolFault] = StreamFault if reaction.scope is Scope.STREAM_ERROR else ConnectionFault
    raise raised(f"frame of type {kind} is not allowed on stream {number} in state {state.name}", reaction.code)


class StreamHistory:
    """The states of streams that are not open, in limited memory however many there were. `last` is the last stream
    that the client opened."""

    def __init__(self, limits: Limits) -> None:
        self.last = 0
        self._max_resets = limits.max_remembered_resets
        self._resets: dict[int, None] = {}
        self._gaps: deque[range] = deque(maxlen=limits.max_remembered_gaps)

    def skip_to(self, number: int) -> None:
        """Stream `number` is opened next, so those in between are closed."""
        self._gaps.append(range(self.last + 1, number))

    def reset_by_server(self, number: int) -> None:
        if len(self._resets) >= 2 * self._max_resets:
            self._resets = dict(islice(self._resets.items(), self._max_resets, None))
        self._resets[number] = None

    def state(self, number: int, connection: ConnectionState) -> StreamState:
        if number in self._resets:
            return StreamState.RESET_BY_SERVER
        if number > self.last:
            return StreamState.AFTER_GOAWAY if connection is ConnectionState.DRAINING else StreamState.IDLE
        if not number % 2:
            return StreamState.IDLE  # clients do not open even-numbered streams
        if any(number in gap for gap in self._gaps):
            return StreamState.SKIPPED
        return StreamState.CLOSED
