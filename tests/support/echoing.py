"""A transport on a free port whose methods are as simple as they can be, so that only the protocol is tested."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from serving.engines.batcher import BatchLimits
from serving.http2.limits import Limits
from serving.transport.connection import Connection, ServedStream
from serving.transport.listening import bound_port
from serving.transport.router import InlineCall, Transport
from serving.transport.tls import TransportTls
from tests.support.running import FakeEngine
from tests.support.waiting import eventually

ECHO = "/test.Echo/Echo"
GROW = "/test.Echo/Grow"
HOLD = "/test.Echo/Hold"
COLLECT = "/test.Echo/Collect"


@dataclass
class Echoing:
    """ECHO answers with the message, GROW with as many bytes as it says, HOLD keeps its calls in `held`.

    COLLECT takes a stream of messages, and its streams are in `streams`.
    """

    transport: Transport
    port: int = 0
    held: list[tuple[bytes, InlineCall]] = field(default_factory=list)
    streams: list[ServedStream] = field(default_factory=list)

    def hold(self, message: bytes, call: InlineCall) -> None:
        self.held.append((message, call))

    def connections(self) -> list[Connection]:
        return self.transport._connections._all()

    def connection(self) -> Connection:
        """The only one, once it is there."""
        eventually(lambda: len(self.connections()) == 1, "one connection")
        return self.connections()[0]


@contextmanager
def echoing(
    max_message_bytes: int = 1 << 20,
    max_streams: int = 100,
    listener: socket.socket | None = None,
    tls: TransportTls | None = None,
    **limits: int,
) -> Iterator[Echoing]:
    """On a free port, or on `listener`."""
    engine = FakeEngine(BatchLimits(1, 1, 1))
    transport = Transport(Limits(max_message_bytes, max_streams, **limits), engine, threads=1, tls=tls)
    running = Echoing(transport)
    transport.add_inline(ECHO, lambda message, call: call.answer(message))
    transport.add_inline(GROW, lambda message, call: call.answer(bytes(int(message))))
    transport.add_inline(HOLD, running.hold)
    transport.add_threaded(COLLECT, running.streams.append, is_streaming=True)
    listener = listener or socket.create_server(("127.0.0.1", 0))
    running.port = bound_port(listener)
    transport.listen(listener)
    transport.start()
    stopping = threading.Lock()
    try:
        yield running
    finally:
        with stopping:
            if not transport._poller._stopped.is_set():
                transport.stop(0.0)
