"""What a client's certificate says of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PeerCertificate:
    """`names` are its subject alternative names as TYPE:VALUE, such as URI:spiffe://example.org/ranker or
    DNS:ranker.example.org. `issuer` (DER) and `serial` are what a revocation list names it by; `not_after` in seconds
    since the epoch."""

    names: tuple[str, ...]
    issuer: bytes
    serial: int
    not_after: float
