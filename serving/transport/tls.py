"""TLS settings of the transport."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from serving.security.peer_certificate import PeerCertificate

HTTP2 = "h2"


@dataclass(frozen=True)
class TransportTls:
    """`context` returns the TLS context for the next handshake, which may take `handshake_s` seconds; `on_handshake`
    counts the result: ok, failed, timeout, or no_alpn if the client did not offer HTTP/2."""

    context: Callable[[], ssl.SSLContext]
    handshake_s: float
    on_handshake: Callable[[str], None]
    # Parses a DER certificate. Passed in, so that a plain-text server does not import the code for certificates.
    read_certificate: Callable[[bytes], PeerCertificate]


HANDSHAKE_RESULTS = ("ok", "failed", "timeout", "no_alpn")
