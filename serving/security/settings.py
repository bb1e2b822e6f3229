"""Settings of TLS, identities and the audit log: a group of ServeConfig."""

import ipaddress
from pathlib import Path
from typing import Annotated

from annotated_types import Gt
from pydantic import Field
from pydantic_settings import BaseSettings

from serving.security.tls_paths import TlsPaths
from serving.transport.listening import is_unix


class SecuritySettings(BaseSettings):
    tls_cert: Path | None = Field(
        None,
        description="PEM file with the server's certificate and its intermediates; turns on TLS. Loaded again when it "
        "changes.",
    )
    tls_key: Path | None = Field(
        None, description="PEM file with the key of --tls-cert, without a password; others must not be able to read it."
    )
    tls_client_ca: Path | None = Field(
        None, description="PEM file with the authorities that sign client certificates; turns on mutual TLS."
    )
    tls_client_auth: str = Field(
        "required",
        pattern="^(required|optional)$",
        description="Whether clients must present a certificate if --tls-client-ca is set: required, or optional (for "
        "clients that identify themselves by a token).",
    )
    tls_crl: Path | None = Field(
        None,
        description="PEM file with the revocation lists of --tls-client-ca. Open connections of a certificate that is "
        "revoked are closed.",
    )
    tls_handshake_s: Annotated[float, Gt(0)] = Field(
        5.0, description="Seconds that a client has to complete the TLS handshake."
    )
    insecure: bool = Field(
        False,
        description="Allow plain text on an address that is not loopback. Anybody on the network can then read and "
        "change requests and responses.",
    )
    metrics_tls: str = Field(
        "auto",
        pattern="^(auto|off|server|mutual)$",
        description="TLS of --metrics-port: auto (as --port), server (without client certificates), mutual, or off. "
        "On an address that is not loopback, plain text must be chosen explicitly with off.",
    )

    identities: Path | None = Field(
        None,
        description="TOML file with the identities that may call, their tokens (hashed), certificates, permissions and "
        "limits; without it everybody may call everything. Read again when it changes.",
    )
    protect_health: bool = Field(
        False, description="Require an identity for health checks, too, if --identities is set."
    )
    audit_log: Path | None = Field(
        None,
        description="File to append admin calls to, one JSON object per line. The server's log always has them, too.",
    )

    triton_ca: Path | None = Field(
        None,
        description="PEM file with the authorities that sign the certificates of the Triton servers; turns on TLS to "
        "them.",
    )
    triton_cert: Path | None = Field(
        None, description="PEM file with the certificate that is presented to the Triton servers."
    )
    triton_key: Path | None = Field(None, description="PEM file with the key of --triton-cert.")
    triton_server_name: str = Field(
        "",
        description="Name in the certificates of the Triton servers; empty means the host of the first address of "
        "--triton.",
    )

    @property
    def tls_paths(self) -> TlsPaths | None:
        """None: plain text."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        requires_client = self.tls_client_ca is not None and self.tls_client_auth == "required"
        return TlsPaths(self.tls_cert, self.tls_key, self.tls_client_ca, self.tls_crl, requires_client)

    @property
    def metrics_tls_paths(self) -> TlsPaths | None:
        paths = self.tls_paths
        if paths is None or self.metrics_tls in ("auto", "off"):
            return None if self.metrics_tls == "off" else paths
        if self.metrics_tls == "server":
            return TlsPaths(paths.certificate, paths.key)
        return TlsPaths(paths.certificate, paths.key, paths.client_ca, paths.crl, requires_client=True)


def check_security(settings: SecuritySettings, host: str, metrics_host: str | None) -> None:
    """ValueError if the settings contradict each other, or expose plain text that nobody asked for. `metrics_host` is
    None where there is no operations port."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ValueError("--tls-cert and --tls-key must be set together")
    if settings.tls_cert is None and settings.tls_client_ca is not None:
        raise ValueError("--tls-client-ca needs --tls-cert and --tls-key")
    if settings.tls_crl is not None and settings.tls_client_ca is None:
        raise ValueError("--tls-crl needs --tls-client-ca")
    if settings.metrics_tls in ("server", "mutual") and settings.tls_cert is None:
        raise ValueError(f"--metrics-tls {settings.metrics_tls} needs --tls-cert and --tls-key")
    if settings.metrics_tls == "mutual" and settings.tls_client_ca is None:
        raise ValueError("--metrics-tls mutual needs --tls-client-ca")
    if (settings.triton_cert is None) != (settings.triton_key is None):
        raise ValueError("--triton-cert and --triton-key must be set together")
    if settings.triton_cert is not None and settings.triton_ca is None:
        raise ValueError("--triton-cert needs --triton-ca")
    if settings.tls_cert is None and not settings.insecure and not is_local(host):
        raise ValueError(
            f"plain text on {host} can be read and changed by anybody on the network: set --tls-cert and --tls-key "
            "(`ghostless certs create` makes some for development), or --insecure if something else protects it"
        )
    if metrics_host is None or is_local(metrics_host):
        return
    if settings.metrics_tls_paths is None and settings.metrics_tls != "off":
        raise ValueError(
            f"the operations port would be plain text on {metrics_host}: set --tls-cert and --tls-key, --metrics-tls "
            "off if something else protects it, or --metrics-host 127.0.0.1"
        )


def is_local(host: str) -> bool:
    """Whether only this machine reaches it."""
    if is_unix(host) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
