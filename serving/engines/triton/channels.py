"""Channels to Triton servers: plain text, or TLS with the files that the settings name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from ghostless.contract.errors import ConfigError
from ghostless.contract.secret_files import read_secret

ChannelOptions = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class TritonTls:
    """PEM files. `server_name` is the name in the certificates of the servers, which are reached by their addresses."""

    authorities: Path
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """The files as they are now: a channel that is opened later sees new ones."""
        key = None if self.key is None else read_secret(self.key, "the key for Triton")
        certificate = None if self.certificate is None else _read(self.certificate)
        return grpc.ssl_channel_credentials(_read(self.authorities), key, certificate)


def open_channel(address: str, tls: TritonTls | None, options: ChannelOptions = ()) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    named = [("grpc.ssl_target_name_override", tls.server_name)] if tls.server_name else []
    return grpc.secure_channel(address, tls.credentials(), options=[*options, *named])


def triton_tls(
    addresses: Sequence[str], ca: Path | None, cert: Path | None, key: Path | None, server_name: str
) -> TritonTls | None:
    """None: plain text. Without a `server_name` it is the host of the first address."""
    if ca is None:
        return None
    host = addresses[0].rpartition(":")[0].strip("[]") if addresses else ""
    return TritonTls(ca, cert, key, server_name or host)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
