"""A client that sends any frame, valid or not, written with hyperframe and hpack and without the server's code."""

import socket
import ssl
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.support.echoing import ECHO

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
AnyFrame = TypeVar("AnyFrame", bound=Frame)


def grpc_message(data: bytes, compressed: int = 0) -> bytes:
    return struct.pack(">BI", compressed, len(data)) + data


def raw_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Bytes of a frame that hyperframe refuses to write."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


@dataclass
class Answer:
    headers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None

    @property
    def message(self) -> bytes:
        assert self.trailers.get("grpc-status") == "0", self
        assert self.data[:5] == struct.pack(">BI", 0, len(self.data) - 5)
        return bytes(self.data[5:])

    @property
    def status(self) -> str:
        return (self.trailers or self.headers)["grpc-status"]


class Peer:
    def __init__(
        self,
        port: int,
        settings: dict[int, int] | None = None,
        receive_buffer: int | None = None,
        connection_window: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`connection_window`: bytes beyond HTTP/2's 65,535 that the server may send on the whole connection."""
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(5)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.encoder = Encoder()
        self.decoder = Decoder()
        self._received = bytearray()
        self.send(PREFACE, SettingsFrame(0, settings or {}))
        if connection_window:
            self.send(WindowUpdateFrame(0, connection_window))

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *parts: Frame | bytes) -> None:
        self.socket.sendall(b"".join(part if isinstance(part, bytes) else part.serialize() for part in parts))

    def head(self, path: str = ECHO, extra: Iterable[tuple[str, str]] = ()) -> bytes:
        """A header block."""
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "test"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *extra,
        ]
        return bytes(self.encoder.encode(fields))

    def headers(
        self, stream: int, path: str = ECHO, *flags: str, extra: Iterable[tuple[str, str]] = ()
    ) -> HeadersFrame:
        return HeadersFrame(stream, self.head(path, extra), flags=["END_HEADERS", *flags])

    def request(self, stream: int, message: bytes, path: str = ECHO) -> bytes:
        """The frames of a complete call, small enough for every server."""
        body = grpc_message(message)
        pieces = [body[start : start + 16_384] for start in range(0, len(body), 16_384)]
        frames: list[Frame] = [self.headers(stream, path), *(DataFrame(stream, piece) for piece in pieces)]
        frames[-1].flags.add("END_STREAM")
        return b"".join(frame.serialize() for frame in frames)

    def call(self, stream: int, message: bytes, path: str = ECHO) -> Answer:
        self.send(self.request(stream, message, path))
        return self.answer(stream)

    def next(self) -> Frame | None:
        """The next frame; None when the connection ends."""
        while True:
            if len(self._received) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(self._received[:9]))
                if len(self._received) >= 9 + length:
                    frame.parse_body(memoryview(bytes(self._received[9 : 9 + length])))
                    del self._received[: 9 + length]
                    return frame
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._received += data

    def expect(self, kind: type[AnyFrame], that: Callable[[Any], bool] = lambda frame: True) -> AnyFrame:
        """The next frame of this kind; others are skipped."""
        while (frame := self.next()) is not None:
            if isinstance(frame, kind) and that(frame):
                return frame
        raise AssertionError(f"the connection ended without {kind.__name__}")

    def answer(self, stream: int, so_far: Answer | None = None) -> Answer:
        """Everything received on one stream until it ends. Frames of other streams are skipped."""
        answer = so_far or Answer()
        while (frame := self.next()) is not None:
            if frame.stream_id != stream:
                if isinstance(frame, HeadersFrame):
                    self.decoder.decode(frame.data)
                continue
            if isinstance(frame, RstStreamFrame):
                answer.reset = frame.error_code
                return answer
            if isinstance(frame, DataFrame):
                answer.data += frame.data
            if isinstance(frame, HeadersFrame):
                block = frame.data
                while "END_HEADERS" not in frame.flags:
                    more = self.next()
                    assert isinstance(more, ContinuationFrame)
                    block += more.data
                    frame.flags |= more.flags
                fields: dict[Any, Any] = dict(self.decoder.decode(block))  # text, though hpack declares bytes
                if answer.headers:
                    answer.trailers = fields
                else:
                    answer.headers = fields
                    if "END_STREAM" in frame.flags:
                        answer.trailers = fields
            if "END_STREAM" in frame.flags:
                return answer
        raise AssertionError(f"the connection ended before stream {stream}: {answer}")

    def fault(self) -> GoAwayFrame:
        """Check that the connection ends with a GOAWAY, and return it."""
        last = self.expect(GoAwayFrame)
        assert self.next() is None, "a connection error ends the connection"
        return last

    def is_well(self, stream: int) -> bool:
        """Whether the connection still works: a PING and a call on this new stream are answered."""
        self.send(PingFrame(0, b"12345678"))
        self.expect(PingFrame, lambda ping: "ACK" in ping.flags and ping.opaque_data == b"12345678")
        return self.call(stream, b"still here").message == b"still here"
