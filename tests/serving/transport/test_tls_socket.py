"""The protocol over TLS, on sockets that are as slow and as full as sockets get."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hyperframe.frame import GoAwayFrame, WindowUpdateFrame

from serving.security.certificates import read_certificate
from serving.security.tls_files import TlsFiles
from serving.transport.tls import HTTP2, TransportTls
from serving.transport.tls_socket import TlsSocket
from tests.support.certificates import URI, Certificates, make_certificates
from tests.support.echoing import ECHO, GROW, HOLD, Echoing, echoing
from tests.support.http2_peer import Peer
from tests.support.waiting import eventually

WIDE = {4: 1 << 30}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def results() -> list[str]:
    return []


@pytest.fixture
def server(certificates: Certificates, results: list[str]) -> Iterator[Echoing]:
    files = TlsFiles(certificates.paths(mutual=True), (HTTP2,))
    with echoing(8 << 20, tls=TransportTls(files.context, 5.0, results.append, read_certificate)) as running:
        yield running


def test_calls_are_answered_and_the_certificate_is_known(server: Echoing, certificates: Certificates) -> None:
    with Peer(server.port, tls=certificates.context("ranker")) as peer:
        for stream, size in ((1, 0), (3, 10), (5, 70_000), (7, 1_000_000)):
            message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            if size > 60_000:
                peer.send(WindowUpdateFrame(0, size))
            peer.send(peer.request(stream, b"%d" % size, GROW))
            if size > 65_535:
                peer.send(WindowUpdateFrame(stream, size))
            assert len(peer.answer(stream).message) == size
        peer.send(peer.request(9, message[:5000]))
        assert peer.answer(9).message == message[:5000]
        certificate = server.connection().certificate
        assert certificate is not None
        assert certificate.names == (f"URI:{URI}", "DNS:ranker")


def test_a_request_of_many_records_in_pieces_of_any_size(server: Echoing, certificates: Certificates) -> None:
    """Records don't end where reads do."""
    with Peer(server.port, WIDE, tls=certificates.context("ranker")) as peer:
        message = bytes(range(251)) * 4000
        peer.send(WindowUpdateFrame(0, 1 << 30))
        data = peer.request(1, message, ECHO)
        for start in range(0, len(data), 33_333):
            peer.send(data[start : start + 33_333])
        assert peer.answer(1).message == message


def test_calls_in_records_of_one_byte_are_answered(server: Echoing, certificates: Certificates) -> None:
    """More records than are read in a turn, and then nothing that would wake the server."""
    with Peer(server.port, tls=certificates.context("ranker")) as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        for number in range(1, 21, 2):
            for byte in peer.request(number, b"m" * 100):
                peer.send(bytes((byte,)))
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        for number in range(1, 21, 2):
            assert peer.answer(number).message == b"m" * 100


def test_handshakes_take_turns_with_calls(
    server: Echoing, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many handshakes that are ready at once, each of which takes long: a call does not wait for all of them."""
    steps: list[float] = []
    slow = TlsSocket.shake_hands

    def shake_hands(sock: TlsSocket) -> bool:
        time.sleep(0.01)
        steps.append(time.monotonic())
        return slow(sock)

    with Peer(server.port, tls=certificates.context("ranker")) as peer, ExitStack() as stack:
        peer.send(peer.request(1, b"before"))
        assert peer.answer(1).message == b"before"
        monkeypatch.setattr(TlsSocket, "shake_hands", shake_hands)
        for _ in range(60):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 5))
            raw.sendall(_hello(certificates))
        eventually(lambda: len(steps) > 2, "the first handshakes")
        peer.send(peer.request(3, b"between"))
        assert peer.answer(3).message == b"between"
        assert len(steps) < 40


def test_an_answer_that_the_socket_does_not_take_at_once_arrives_whole(
    server: Echoing, certificates: Certificates
) -> None:
    with Peer(server.port, WIDE, receive_buffer=8192, tls=certificates.context("ranker")) as peer:
        peer.send(WindowUpdateFrame(0, 1 << 30), peer.request(1, b"6000000", GROW), peer.request(3, b"1000000", GROW))
        connection = server.connection()
        eventually(lambda: connection.has_unsent, "more than the socket takes")
        assert len(peer.answer(1).message) == 6_000_000
        assert len(peer.answer(3).message) == 1_000_000
        eventually(lambda: not connection.has_unsent, "all of it sent")


def test_answers_from_other_threads_while_requests_come(server: Echoing, certificates: Certificates) -> None:
    with Peer(server.port, WIDE, tls=certificates.context("ranker")) as peer:
        peer.send(WindowUpdateFrame(0, 1 << 30))
        for stream in range(1, 101, 2):
            peer.send(peer.request(stream, b"%d" % stream * 3000, HOLD))
        eventually(lambda: len(server.held) == 50, "all calls")
        for message, call in server.held:
            call.answer(message)
            peer.send(peer.request(1001 + 2 * server.held.index((message, call)), b"more"))
        for stream in range(1, 101, 2):
            assert peer.answer(stream).message == b"%d" % stream * 3000


def test_the_server_says_goodbye_in_tls_too(server: Echoing, certificates: Certificates) -> None:
    with Peer(server.port, tls=certificates.context("ranker")) as peer:
        peer.send(peer.request(1, b"before"))
        assert peer.answer(1).message == b"before"
        peer.send(b"\0\0\0\x08\0\0\0\0\0")  # WINDOW_UPDATE without its payload
        assert peer.expect(GoAwayFrame).error_code
        # close_notify: without it this would be ssl.SSLEOFError.
        assert peer.socket.recv(1) == b""


def _last_words(secured: ssl.SSLSocket) -> bytes:
    """Empty where an alert, or the end, is all that comes."""
    try:
        return secured.recv(1)
    except ssl.SSLError:
        return b""


def _hello(certificates: Certificates) -> bytes:
    """A ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        certificates.context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_a_handshake_that_takes_too_long_is_given_up(certificates: Certificates, results: list[str]) -> None:
    files = TlsFiles(certificates.paths(), (HTTP2,))
    tls = TransportTls(files.context, 0.2, results.append, read_certificate)
    with (
        echoing(tls=tls) as server,
        socket.create_connection(("127.0.0.1", server.port), 5) as silent,
        socket.create_connection(("127.0.0.1", server.port), 5) as slow,
    ):
        slow.sendall(_hello(certificates)[:50])
        assert silent.recv(1) == slow.recv(1) == b""
        eventually(lambda: results == ["timeout", "timeout"], "both counted")
        with Peer(server.port, tls=certificates.context()) as peer:
            peer.send(peer.request(1, b"still there"))
            assert peer.answer(1).message == b"still there"


@pytest.mark.parametrize(
    ("attempt", "result"),
    [("plain text", "failed"), ("no certificate", "failed"), ("http/1.1", "no_alpn"), ("TLS 1.1", "failed")],
)
def test_what_is_not_mutual_tls_with_http2_is_refused(
    server: Echoing, certificates: Certificates, results: list[str], attempt: str, result: str
) -> None:
    context = certificates.context(
        "" if attempt == "no certificate" else "ranker", () if attempt == "http/1.1" else ("h2",)
    )
    with socket.create_connection(("127.0.0.1", server.port), 5) as plain:
        if attempt == "plain text":
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
            assert len(plain.recv(1000)) < 20  # an alert
        elif attempt == "TLS 1.1":
            # Record and hello of version 3.2, and no supported_versions: as a client of 2006 would send.
            body = b"\x03\x02" + bytes(32) + b"\0" + b"\0\x02\xc0\x13" + b"\x01\0"
            plain.sendall(b"\x16\x03\x01" + (len(body) + 4).to_bytes(2) + b"\x01" + len(body).to_bytes(3) + body)
            assert plain.recv(1000)[0] == 0x15
        else:
            # TLS 1.3 clients are done before the server has seen their certificate.
            with context.wrap_socket(plain, server_hostname="localhost") as secured:
                assert _last_words(secured) == b""
    eventually(lambda: results == [result], f"{result} counted")
    assert not server.connections()


def test_tls_1_2_with_its_good_ciphers(server: Echoing, certificates: Certificates) -> None:
    context = certificates.context("ranker")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with Peer(server.port, tls=context) as peer:
        peer.send(peer.request(1, b"old"))
        assert peer.answer(1).message == b"old"
        assert isinstance(peer.socket, ssl.SSLSocket)
        cipher = peer.socket.cipher()
        assert cipher is not None
        assert cipher[0].startswith("ECDHE-")
    weak = certificates.context("ranker")
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA")
    with pytest.raises(ssl.SSLError):
        Peer(server.port, tls=weak)


def test_a_stopping_server_waits_for_no_handshake(certificates: Certificates, tmp_path: Path) -> None:
    files = TlsFiles(certificates.paths(), (HTTP2,))
    tls = TransportTls(files.context, 60.0, lambda result: None, read_certificate)
    with echoing(tls=tls) as server, socket.create_connection(("127.0.0.1", server.port), 5) as silent:
        eventually(lambda: server.transport._connections._handshakes._pending, "the handshake")  # type: ignore[union-attr]
        assert server.transport.stop(5.0)
        assert silent.recv(1) == b""
