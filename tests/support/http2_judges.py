"""Feeds the same bytes to the server's protocol and to the h2 package: what each accepts, rejects and answers."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError, StreamClosedError
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame

from serving.http2 import events
from serving.http2.limits import Limits
from serving.http2.protocol import ServerProtocol
from serving.http2.stream import Stream

LIMITS = Limits(max_message_bytes=1 << 17, max_streams=100, max_frame_bytes=1 << 16)
# A call to ANSWER + "7" is answered with 7 bytes once it is complete; a call to HOLD is never answered.
ANSWER, HOLD = "/answer/", "/hold"
_UNARY = (HOLD, *(f"{ANSWER}{size}" for size in (0, 7, 3000, 70_000)))


@dataclass
class Step:
    """The effect of some bytes. `refused`: the first error, as ("stream" or "connection", code)."""

    refused: tuple[str, int] | None = None
    # Frames of the connection that were acknowledged, in order.
    acknowledged: list[bytes] = field(default_factory=list)
    # Error code of the reset, by stream.
    resets: dict[int, int] = field(default_factory=dict)
    data_bytes: dict[int, int] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)

    def take(self, wire: bytes) -> None:
        at = 0
        while at < len(wire):
            frame, length = Frame.parse_frame_header(memoryview(wire[at : at + 9]))
            frame.parse_body(memoryview(wire[at + 9 : at + 9 + length]))
            at += 9 + length
            self._take_frame(frame)

    def _take_frame(self, frame: Frame) -> None:
        if isinstance(frame, GoAwayFrame) and frame.error_code:
            self.refused = self.refused or ("connection", frame.error_code)
        elif isinstance(frame, RstStreamFrame) and frame.error_code:
            self.refused = self.refused or ("stream", frame.error_code)
            self.resets[frame.stream_id] = frame.error_code
        elif isinstance(frame, PingFrame | SettingsFrame) and "ACK" in frame.flags:
            self.acknowledged.append(frame.opaque_data if isinstance(frame, PingFrame) else b"settings")
        elif isinstance(frame, DataFrame | HeadersFrame):
            if isinstance(frame, DataFrame):
                self.data_bytes[frame.stream_id] = self.data_bytes.get(frame.stream_id, 0) + len(frame.data)
            if "END_STREAM" in frame.flags:
                self.ended.append(frame.stream_id)


class OwnJudge:
    def __init__(self) -> None:
        self.protocol = ServerProtocol(LIMITS, _UNARY, Stream)
        self.protocol.take_outgoing()

    def feed(self, data: bytes) -> Step:
        step = Step()
        while True:
            for event in self.protocol.receive(memoryview(data)):
                self._on_event(event, step)
            if not self.protocol.reader.has_more:
                break
            data = b""
        step.take(b"".join(self.protocol.take_outgoing()))
        return step

    def _on_event(self, event: events.Event[Stream], step: Step) -> None:
        if isinstance(event, events.RequestReceived) and not event.stream.ended:
            step.requests.append(event.stream.number)
            path = event.stream.head.path
            if path.startswith(ANSWER):
                self.protocol.answer(event.stream, bytes(int(path.removeprefix(ANSWER))))


class H2Judge:
    """A server on the h2 package that answers as gRPC does, as far as the client's windows allow."""

    def __init__(self) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False))
        self.h2.initiate_connection()
        self.h2.data_to_send()
        self._paths: dict[int, str] = {}
        self._unsent: dict[int, bytes] = {}

    def feed(self, data: bytes) -> Step:
        step = Step()
        try:
            for event in self.h2.receive_data(data):
                self._on_event(event, step)
            self._send()
        except ProtocolError:
            pass  # its GOAWAY is part of the bytes that it sends
        step.take(self.h2.data_to_send())
        return step

    def _on_event(self, event: Event, step: Step) -> None:
        if isinstance(event, RequestReceived):
            self._paths[event.stream_id] = dict(event.headers).get(b":path", b"").decode("latin-1")
        elif isinstance(event, StreamEnded):
            path = self._paths[event.stream_id]
            step.requests.append(event.stream_id)
            if path.startswith(ANSWER):
                message = bytes(int(path.removeprefix(ANSWER)))
                self.h2.send_headers(event.stream_id, [(":status", "200"), ("content-type", "application/grpc")])
                self._unsent[event.stream_id] = b"\0" + len(message).to_bytes(4) + message
        elif isinstance(event, StreamReset):
            self._unsent.pop(event.stream_id, None)

    def _send(self) -> None:
        for number, unsent in list(self._unsent.items()):
            with suppress(StreamClosedError):
                while unsent and (room := self._room(number)) > 0:
                    self.h2.send_data(number, unsent[:room])
                    unsent = unsent[room:]
                self._unsent[number] = unsent
                if not unsent:
                    del self._unsent[number]
                    self.h2.send_headers(number, [("grpc-status", "0")], end_stream=True)

    def _room(self, number: int) -> int:
        return min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)


def judged_until_refused(judge: OwnJudge | H2Judge, pieces: Iterable[bytes]) -> list[Step]:
    steps = []
    for piece in pieces:
        steps.append(judge.feed(piece))
        if steps[-1].refused:
            break
    return steps
