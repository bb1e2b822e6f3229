"""A transport on a free port with trivial methods, to test the protocol only."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from serving.engines.batcher import BatchLimits
from serving.http2.errors import Closing
from serving.http2.limits import Limits
from serving.transport.admission import NO_LIMITS, ConnectionLimits
from serving.transport.closings import ConnectionObserver
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
    """ECHO returns the message, GROW returns the requested number of bytes, HOLD puts its calls into `held`.

    COLLECT receives a stream of messages; its streams are in `streams`. `closed` counts connections by reason.
    """

    transport: Transport
    port: int = 0
    held: list[tuple[bytes, InlineCall]] = field(default_factory=list)
    streams: list[ServedStream] = field(default_factory=list)
    closed: Counter[Closing] = field(default_factory=Counter)

    def hold(self, message: bytes, call: InlineCall) -> None:
        self.held.append((message, call))

    def connections(self) -> list[Connection]:
        return self.transport._connections._all()

    def connection(self) -> Connection:
        """The only connection; waits until it exists."""
        eventually(lambda: len(self.connections()) == 1, "one connection")
        return self.connections()[0]


@contextmanager
def echoing(
    max_message_bytes: int = 1 << 20,
    max_streams: int = 100,
    listener: socket.socket | None = None,
    connections: ConnectionLimits = NO_LIMITS,
    tls: TransportTls | None = None,
    **limits: Any,
) -> Iterator[Echoing]:
    """Start the transport on a free port, or on `listener`; `limits` are fields of serving.http2.limits.Limits."""
    closed: Counter[Closing] = Counter()
    transport = Transport(
        Limits(max_message_bytes, max_streams, **limits),
        FakeEngine(BatchLimits(1, 1, 1)),
        threads=1,
        connection_limits=connections,
        observer=ConnectionObserver(lambda reason, number: closed.update({reason: number})),
        tls=tls,
    )
    running = Echoing(transport, closed=closed)
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
