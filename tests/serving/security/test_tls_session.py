"""TLS without a socket."""

import ssl

import pytest

from serving.security.tls_files import TlsFiles
from serving.security.tls_session import TlsSession
from tests.support.certificates import Certificates, make_certificates

RECORDS = 1000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def _session(certificates: Certificates) -> tuple[TlsSession, ssl.SSLObject, ssl.MemoryBIO]:
    """A server's side, and a client's with what it sends, after the handshake."""
    session = TlsSession(TlsFiles(certificates.paths(), ("h2",)).context())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificates.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    is_complete = False
    while not is_complete:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            """The server is next."""
        session.feed(outgoing.read())
        is_complete = session.handshake()
        incoming.write(session.take())
    return session, client, outgoing


def test_small_records_are_read_some_at_a_time(certificates: Certificates) -> None:
    """A record takes as long as a frame, so a turn must not be 11,000 of them."""
    session, client, sent = _session(certificates)
    for number in range(RECORDS):
        client.write(bytes((number % 256,)))
    session.feed(sent.read())
    buffer = memoryview(bytearray(1 << 18))
    data = bytearray()
    reads = 0
    while True:
        taken = session.read_into(buffer)
        assert taken <= 256
        data += buffer[:taken]
        reads += 1
        if not session.has_unread:
            break
    assert data == bytes(number % 256 for number in range(RECORDS))
    assert reads >= RECORDS // 256
    assert not session.is_closed


def test_large_records_are_read_at_once(certificates: Certificates) -> None:
    session, client, sent = _session(certificates)
    message = bytes(range(256)) * 800
    client.write(message)
    session.feed(sent.read())
    buffer = memoryview(bytearray(1 << 18))
    assert bytes(buffer[: session.read_into(buffer)]) == message
    assert not session.has_unread


def test_the_end_is_seen_after_small_records(certificates: Certificates) -> None:
    session, client, sent = _session(certificates)
    for _ in range(300):
        client.write(b"x")
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()
    session.feed(sent.read())
    buffer = memoryview(bytearray(1 << 18))
    assert session.read_into(buffer) == 256
    assert not session.is_closed
    assert session.read_into(buffer) == 44
    assert session.is_closed


def test_records_may_be_cut_anywhere(certificates: Certificates) -> None:
    session, client, sent = _session(certificates)
    for size in (1, 20_000, 5, 300):
        client.write(bytes((size % 256,)) * size)
    ciphertext = sent.read()
    buffer = memoryview(bytearray(1 << 18))
    data = bytearray()
    for start in range(0, len(ciphertext), 7):
        session.feed(ciphertext[start : start + 7])
        data += buffer[: session.read_into(buffer)]
    assert data == b"".join(bytes((size % 256,)) * size for size in (1, 20_000, 5, 300))
    assert not session.is_flooded


def test_a_hello_in_many_records_is_taken_at_once(certificates: Certificates) -> None:
    session = TlsSession(TlsFiles(certificates.paths(), ("h2",)).context())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificates.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    head, body = hello[:3], hello[5:]
    pieces = [body[start : start + 8] for start in range(0, len(body), 8)]
    session.feed(b"".join(head + len(piece).to_bytes(2) + piece for piece in pieces))
    assert not session.handshake()
    assert session.has_output
