"""The h2 package as the client: it checks every frame that the server sends against the protocol's state machine."""

import socket
from collections import defaultdict
from collections.abc import Iterator
from typing import cast

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes, Settings

from tests.support.echoing import ECHO, GROW, HOLD, Echoing, echoing
from tests.support.http2_peer import grpc_message
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[Echoing]:
    with echoing(max_message_bytes=4 << 20, max_streams=50) as running:
        yield running


class H2Client:
    """Sends no more than the server's windows allow, and opens its own as it reads."""

    def __init__(self, port: int, settings: dict[SettingCodes, int] | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        if settings:
            self.h2.local_settings = Settings(client=True, initial_values=settings)
        self.h2.initiate_connection()
        self.data: dict[int, bytearray] = defaultdict(bytearray)
        self.heads: dict[int, dict[str, str]] = {}
        self.trailers: dict[int, dict[str, str]] = {}
        self.ended: set[int] = set()
        self.reset: dict[int, int] = {}
        self.events: list[Event] = []
        self.flush()

    def __enter__(self) -> "H2Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def open(self, path: str, message: bytes | None, **metadata: str) -> int:
        """Begin a call; without a message it is left open."""
        number = self.h2.get_next_available_stream_id()
        head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
        fields = {**head, "content-type": "application/grpc", **metadata}
        self.h2.send_headers(number, list(fields.items()))
        body = b"" if message is None else grpc_message(message)
        while body:
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size, len(body))
            if not room:
                self.read()
                continue
            padding = 3 if room > 1000 else None
            piece = body[: room - 4] if padding else body[:room]
            self.h2.send_data(number, piece, pad_length=padding)
            body = body[len(piece) :]
        if message is not None:
            self.h2.end_stream(number)
        self.flush()
        return number

    def read(self) -> None:
        self.flush()
        received = self.socket.recv(1 << 16)
        assert received, "the connection ended"
        for event in self.h2.receive_data(received):
            self.events.append(event)
            if isinstance(event, DataReceived):
                self.data[event.stream_id] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, ResponseReceived):
                self.heads[event.stream_id] = cast("dict[str, str]", dict(event.headers))
            elif isinstance(event, TrailersReceived):
                self.trailers[event.stream_id] = cast("dict[str, str]", dict(event.headers))
            elif isinstance(event, StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, StreamReset):
                self.reset[event.stream_id] = event.error_code
            assert not isinstance(event, ConnectionTerminated), event
        self.flush()

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    def answer(self, number: int) -> bytes:
        while number not in self.ended:
            self.read()
        assert self.trailers[number]["grpc-status"] == "0"
        return bytes(self.data[number][5:])


def test_calls_of_all_sizes_interleaved(server: Echoing) -> None:
    with H2Client(server.port) as client:
        sizes = [0, 1, 100, 16_379, 65_530, 70_000, 300_000, 2_000_000]
        numbers = {client.open(ECHO, bytes([size % 251]) * size): size for size in sizes}
        for number, size in numbers.items():
            assert client.answer(number) == bytes([size % 251]) * size
        assert not client.reset


def test_small_windows_and_frames(server: Echoing) -> None:
    settings = {SettingCodes.INITIAL_WINDOW_SIZE: 1000, SettingCodes.HEADER_TABLE_SIZE: 0}
    with H2Client(server.port, settings) as client:
        numbers = [client.open(GROW, b"30000") for _ in range(10)]
        for number in numbers:
            assert len(client.answer(number)) == 30_000


def test_settings_changed_while_answers_are_on_their_way(server: Echoing) -> None:
    with H2Client(server.port, {SettingCodes.INITIAL_WINDOW_SIZE: 500}) as client:
        while not client.count(SettingsAcknowledged):
            client.read()
        numbers = [client.open(GROW, b"20000") for _ in range(5)]
        for window in (100, 3000, 50, 70_000):
            client.h2.update_settings(
                {SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.MAX_FRAME_SIZE: 16_384 + window}
            )
            # h2 counts by the new window from the acknowledgement on, and faults whatever is sent beyond it.
            acknowledged = client.count(SettingsAcknowledged)
            while client.count(SettingsAcknowledged) == acknowledged:
                client.read()
        for number in numbers:
            assert len(client.answer(number)) == 20_000


def test_a_call_that_was_refused_early_is_well_formed(server: Echoing) -> None:
    with H2Client(server.port) as client:
        number = client.open(ECHO, None)
        client.h2.send_data(number, b"\0\xff\xff\xff\xff")
        while number not in client.ended:
            client.read()
        assert client.heads[number]["grpc-status"] == "8"
        assert client.answer(client.open(ECHO, b"next")) == b"next"


def test_no_more_streams_than_the_server_said(server: Echoing) -> None:
    server.held.clear()
    with H2Client(server.port) as client:
        client.read()
        assert client.h2.remote_settings.max_concurrent_streams == 50
        numbers = [client.open(HOLD, b"%d" % place) for place in range(50)]
        eventually(lambda: len(server.held) == 50, "all calls")
        client.h2.reset_stream(numbers[7], 8)
        client.flush()
        for message, call in reversed(server.held):
            if message != b"7":
                call.answer(message)
        assert [client.answer(n) for n in numbers if n != numbers[7]] == [b"%d" % p for p in range(50) if p != 7]


def test_pings_and_changing_heads(server: Echoing) -> None:
    with H2Client(server.port) as client:
        for turn in range(30):
            client.h2.ping(b"%8d" % turn)
            number = client.open(ECHO, b"x", **{"trace": str(turn % 4), "long": "v" * (turn * 100 % 3000)})
            assert client.answer(number) == b"x"
        assert client.count(PingAckReceived) == 30
