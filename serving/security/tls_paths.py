"""Which files TLS is made of."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TlsPaths:
    """PEM files. `client_ca` asks clients for a certificate, which they must have if `requires_client`."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    crl: Path | None = None
    requires_client: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.certificate, self.key, self.client_ca, self.crl) if path is not None)
