"""Certificates and revocation lists, read."""

from pathlib import Path

from cryptography import x509

from ghostless.contract.errors import ConfigError
from serving.security.peer_certificate import PeerCertificate


def read_certificate(der: bytes) -> PeerCertificate:
    return _described(x509.load_der_x509_certificate(der))


def describe_certificates(path: Path) -> list[PeerCertificate]:
    """All of a PEM file."""
    return [_described(certificate) for certificate in _load(path)]


def _described(certificate: x509.Certificate) -> PeerCertificate:
    return PeerCertificate(
        names=_names(certificate),
        issuer=certificate.issuer.public_bytes(),
        serial=certificate.serial_number,
        not_after=certificate.not_valid_after_utc.timestamp(),
    )


def read_revoked(pem: bytes) -> tuple[frozenset[tuple[bytes, int]], float]:
    """Issuer and serial of each certificate that the revocation lists name, and when the first of them is due to be
    renewed (seconds since the epoch)."""
    revoked: set[tuple[bytes, int]] = set()
    due: list[float] = []
    for block in _blocks(pem):
        crl = x509.load_pem_x509_crl(block)
        issuer = crl.issuer.public_bytes()
        revoked.update((issuer, entry.serial_number) for entry in crl)
        if crl.next_update_utc is not None:
            due.append(crl.next_update_utc.timestamp())
    return frozenset(revoked), min(due, default=float("inf"))


def first_expiry(path: Path) -> float:
    """Of the certificates in a PEM file, in seconds since the epoch."""
    return min(certificate.not_after for certificate in describe_certificates(path))


def _load(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the certificates in {path}: {error}") from error


def _blocks(pem: bytes) -> list[bytes]:
    end = b"-----END X509 CRL-----"
    return [block + end for block in pem.split(end)[:-1]]


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (
        *(f"URI:{value}" for value in found.get_values_for_type(x509.UniformResourceIdentifier)),
        *(f"DNS:{value}" for value in found.get_values_for_type(x509.DNSName)),
        *(f"IP:{value}" for value in found.get_values_for_type(x509.IPAddress)),
        *(f"EMAIL:{value}" for value in found.get_values_for_type(x509.RFC822Name)),
    )
