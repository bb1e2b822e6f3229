"""What a connection's last head was found to mean."""

from dataclasses import dataclass

from serving.http2.headers import RequestHead
from serving.security.identities import Identities, Identity
from serving.security.row_meters import RowMeter


@dataclass(frozen=True, slots=True)
class Credentials:
    """`head` had the credentials of `identity`, which may make this call, by `identities`, until `expires` (seconds
    since the epoch). `meter` counts its rows; None: they are not limited."""

    head: RequestHead
    identities: Identities
    identity: Identity
    expires: float
    meter: RowMeter | None
