"""The server's certificate, key, certificate authorities and revocation list: loaded, and loaded anew when they change.

Connections keep the certificate that they were opened with; the next handshake uses what is current.
"""

import logging
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ghostless.contract.errors import ConfigError
from ghostless.contract.secret_files import read_secret, signature
from serving.security.certificates import first_expiry, read_revoked
from serving.security.peer_certificate import PeerCertificate
from serving.security.tls_paths import TlsPaths

_log = logging.getLogger(__name__)

# Forward secrecy and authenticated encryption; HTTP/2 forbids most others (RFC 9113, appendix A). TLS 1.3 has no worse.
_TLS_1_2_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


@dataclass(frozen=True)
class LoadedTls:
    """`expiries` in seconds since the epoch, by what expires: server, client_ca, crl."""

    context: ssl.SSLContext
    expiries: Mapping[str, float]
    revoked: frozenset[tuple[bytes, int]] = field(default_factory=frozenset)


class TlsFiles:
    """ConfigError if they can't be loaded at first; later the last good ones stay."""

    def __init__(self, paths: TlsPaths, protocols: tuple[str, ...]) -> None:
        self._paths = paths
        self._protocols = protocols
        self._seen = signature(paths.files)
        self.current = load_tls(paths, protocols)

    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        return self.current.context

    def refresh(self) -> bool | None:
        """Load the files if they changed. Whether that succeeded; None: nothing to do.

        A certificate and its key can't be replaced at once: in between they don't match, and the old ones stay.
        """
        found = signature(self._paths.files)
        if found == self._seen:
            return None
        self._seen = found
        try:
            self.current = load_tls(self._paths, self._protocols)
        except ConfigError as error:
            _log.error("the changed TLS files are not used: %s", error)
            return False
        _log.info("TLS files reloaded")
        return True

    def is_trusted(self, certificate: PeerCertificate) -> bool:
        """Whether a connection that was opened with it may go on: it has neither expired nor been revoked since."""
        revoked = self.current.revoked
        return certificate.not_after > time.time() and (certificate.issuer, certificate.serial) not in revoked


def load_tls(paths: TlsPaths, protocols: tuple[str, ...]) -> LoadedTls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS_1_2_CIPHERS)
    # A resumed session would not look at the revocation list again; gRPC's connections are long, so little is lost.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    context.set_alpn_protocols(list(protocols))
    read_secret(paths.key, "the TLS key")
    try:
        # Without a callback OpenSSL would ask for an encrypted key's password at the terminal.
        context.load_cert_chain(paths.certificate, paths.key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"cannot use the certificate {paths.certificate} with the key {paths.key}: {error}"
        ) from error
    expiries = {"server": first_expiry(paths.certificate)}
    revoked: frozenset[tuple[bytes, int]] = frozenset()
    if paths.client_ca is not None:
        _load_authorities(context, paths.client_ca)
        expiries["client_ca"] = first_expiry(paths.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if paths.requires_client else ssl.CERT_OPTIONAL
    if paths.crl is not None:
        try:
            revoked, expiries["crl"] = read_revoked(paths.crl.read_bytes())
            context.load_verify_locations(paths.crl)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot use the revocation list {paths.crl}: {error}") from error
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    return LoadedTls(context, expiries, revoked)


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the certificate authorities in {path}: {error}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted; the server takes keys without a password only")
