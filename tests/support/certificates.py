"""A development authority with a server's and a client's certificate, and contexts of clients that trust it."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from ghostless.client import Tls
from serving.security.development_ca import CA, CRL, DevelopmentCa
from serving.security.tls_paths import TlsPaths

URI = "spiffe://example.org/ranker"


@dataclass(frozen=True)
class Certificates:
    """Of a server at localhost and 127.0.0.1, and of the client `ranker` (DNS:ranker and URI)."""

    folder: Path
    authority: DevelopmentCa

    @property
    def ca(self) -> Path:
        return self.folder / CA

    @property
    def crl(self) -> Path:
        return self.folder / CRL

    @property
    def server(self) -> dict[str, object]:
        """Settings of a server with TLS."""
        return {"tls_cert": self.folder / "server.pem", "tls_key": self.folder / "server-key.pem"}

    @property
    def mutual(self) -> dict[str, object]:
        """Settings of a server with mutual TLS and a revocation list."""
        return {**self.server, "tls_client_ca": self.ca, "tls_crl": self.crl}

    def paths(self, mutual: bool = False) -> TlsPaths:
        server = (self.folder / "server.pem", self.folder / "server-key.pem")
        return TlsPaths(*server, self.ca, self.crl, requires_client=True) if mutual else TlsPaths(*server)

    def tls(self, client: str = "") -> Tls:
        """Of a client, with a certificate if it has a name."""
        if not client:
            return Tls.from_files(self.ca)
        return Tls.from_files(self.ca, self.folder / f"{client}.pem", self.folder / f"{client}-key.pem")

    def channel(self, port: int, client: str = "") -> grpc.Channel:
        return grpc.secure_channel(f"localhost:{port}", self.tls(client).credentials())

    def context(self, client: str = "", protocols: tuple[str, ...] = ("h2",)) -> ssl.SSLContext:
        """For a client's socket."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if protocols:
            context.set_alpn_protocols(list(protocols))
        if client:
            context.load_cert_chain(self.folder / f"{client}.pem", self.folder / f"{client}-key.pem")
        return context


def make_certificates(folder: Path) -> Certificates:
    authority = DevelopmentCa(folder)
    authority.issue_server("server", ["localhost", "127.0.0.1"])
    authority.issue_client("ranker", [URI])
    authority.revoke([])
    return Certificates(folder, authority)
