"""A certificate authority for development and tests, in a folder: certificates of servers and clients, revocation.

For production take certificates from an authority that keeps its key away from the machines that it vouches for.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ghostless.contract.errors import ConfigError
from ghostless.contract.secret_files import read_secret, write_secret

CA, CA_KEY, CRL = "ca.pem", "ca-key.pem", "crl.pem"
_CA_DAYS = 3650
_CRL_DAYS = 365
# Clocks differ.
_EARLIER = timedelta(minutes=5)


class DevelopmentCa:
    """In `folder`; made there if there is none. `now` is when what it signs begins to be valid."""

    def __init__(self, folder: Path, now: datetime | None = None) -> None:
        self._folder = folder
        self._now = now or datetime.now(UTC)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / CA_KEY).exists():
            self._make()
        key = serialization.load_pem_private_key(read_secret(folder / CA_KEY, "the CA's key"), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{folder / CA_KEY} is not a key that this command made")
        self._key = key
        self._certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())

    def issue_server(self, name: str, hosts: Sequence[str], days: float = 90) -> tuple[Path, Path]:
        """NAME.pem and NAME-key.pem, for a server that is reached at these names and addresses."""
        alternatives = [_host_name(host) for host in hosts]
        return self._issue(name, alternatives, ExtendedKeyUsageOID.SERVER_AUTH, days)

    def issue_client(self, name: str, uris: Sequence[str] = (), days: float = 90) -> tuple[Path, Path]:
        """NAME.pem and NAME-key.pem, for the client DNS:NAME, and URI:... for each of `uris`."""
        alternatives = [x509.DNSName(name), *map(x509.UniformResourceIdentifier, uris)]
        return self._issue(name, alternatives, ExtendedKeyUsageOID.CLIENT_AUTH, days)

    def revoke(self, names: Sequence[str], days: float = _CRL_DAYS) -> Path:
        """Write crl.pem with these certificates besides those that it has; renews it where there are none."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject)
        builder = builder.last_update(self._now - _EARLIER).next_update(self._now + timedelta(days=days))
        path = self._folder / CRL
        serials: set[int] = set()
        if path.exists():
            serials.update(entry.serial_number for entry in x509.load_pem_x509_crl(path.read_bytes()))
        for name in names:
            serials.add(x509.load_pem_x509_certificate(self._read(f"{name}.pem")).serial_number)
        for serial in sorted(serials):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(self._now - _EARLIER)
            builder = builder.add_revoked_certificate(entry.build())
        crl = builder.sign(self._key, hashes.SHA256())
        _write_public(path, crl.public_bytes(serialization.Encoding.PEM))
        return path

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Ghostless development CA")])
        usage = x509.KeyUsage(
            key_cert_sign=True,
            crl_sign=True,
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(name, name, key.public_key(), _CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write_public(self._folder / CA, certificate.public_bytes(serialization.Encoding.PEM))
        write_secret(self._folder / CA_KEY, _private_pem(key))

    def _issue(
        self, name: str, alternatives: Sequence[x509.GeneralName], purpose: x509.ObjectIdentifier, days: float
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._builder(subject, self._certificate.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        paths = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem"
        write_secret(paths[1], _private_pem(key))
        _write_public(paths[0], certificate.public_bytes(serialization.Encoding.PEM))
        return paths

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(self._now - _EARLIER).not_valid_after(self._now + timedelta(days=days))

    def _read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {self._folder / name}: {error.strerror}") from error


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_public(path: Path, content: bytes) -> None:
    """Replaced as a whole: a server may be watching it."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(content)
    draft.replace(path)
