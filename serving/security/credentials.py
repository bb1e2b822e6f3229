"""What a connection's last head was found to mean."""

from dataclasses import dataclass

from serving.http2.headers import RequestHead
from serving.security.identities import Identities, Identity


@dataclass(frozen=True, slots=True)
class Credentials:
    """`head` had the credentials of `identity`, by `identities`, until `expires` (seconds since the epoch)."""

    head: RequestHead
    identities: Identities
    identity: Identity
    expires: float
