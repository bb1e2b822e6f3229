"""What the transport needs to know of TLS."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from serving.security.peer_certificate import PeerCertificate

HTTP2 = "h2"


@dataclass(frozen=True)
class TransportTls:
    """`context` gives the context of the next handshake, which has `handshake_s` seconds; `on_handshake` counts how it
    went: ok, failed, timeout, or no_alpn where the client did not offer HTTP/2."""

    context: Callable[[], ssl.SSLContext]
    handshake_s: float
    on_handshake: Callable[[str], None]
    # DER -> what it says. Given by who knows of certificates, so that a plain-text server need not load that.
    read_certificate: Callable[[bytes], PeerCertificate]


HANDSHAKE_RESULTS = ("ok", "failed", "timeout", "no_alpn")
