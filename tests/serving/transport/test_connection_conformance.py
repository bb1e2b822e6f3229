"""Every row of the conformance table over a real socket: the error arrives, whatever the client still sends."""

import socket
from collections.abc import Iterator

import pytest

from ghostless.contract import http2_frames as f
from serving.http2.headers import OK_TRAILERS
from tests.serving.http2.conformance_rows import FRAMES, STATES
from tests.serving.http2.field_rows import FIELDS
from tests.serving.http2.hpack_rows import HPACK, IGNORED
from tests.support.echoing import Echoing, echoing
from tests.support.http2_judges import ANSWER, HOLD, LIMITS, Step
from tests.support.http2_peer import raw_frame
from tests.support.http2_rows import OPENING, Row

ROWS = [*FRAMES, *STATES, *FIELDS, *HPACK, *IGNORED]
MORE = 1000 * raw_frame(0x77, 0, 0, b"on its way")


@pytest.fixture(scope="module")
def server() -> Iterator[Echoing]:
    with echoing(
        LIMITS.max_message_bytes, LIMITS.max_streams, max_frame_bytes=LIMITS.max_frame_bytes, linger_s=5.0
    ) as running:
        running.transport.add_inline(HOLD, running.hold)
        running.transport.add_inline(f"{ANSWER}7", lambda message, call: call.answer(bytes(7)))
        yield running


def _read(sock: socket.socket, until: bytes) -> tuple[Step, bool]:
    """What came until this did, or to the end; and whether that was the end."""
    received = bytearray()
    while until not in received:
        piece = sock.recv(1 << 16)
        if not piece:
            break
        received += piece
    step = Step()
    step.take(bytes(received))
    return step, until not in received


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_over_a_socket(server: Echoing, row: Row) -> None:
    is_connection_error = row.refused is not None and row.refused[0] == "connection"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
        sock.sendall(OPENING + row.before)
        _read(sock, OK_TRAILERS if row.before else f.frame(f.SETTINGS, f.ACK, 0))
        sock.sendall(row.wire + raw_frame(f.PING, 0, 0, b"the end?"))
        if is_connection_error:
            sock.sendall(MORE)
        step, is_over = _read(sock, b"the end?")
    assert (step.refused, is_over) == (row.refused, is_connection_error)
