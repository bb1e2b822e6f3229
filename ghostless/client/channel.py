"""Converts addresses and settings to gRPC's target and channel options: round-robin, retries, keepalive, TLS."""

import ipaddress
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc

from ghostless.client.retry import RetryPolicy, retry_config
from ghostless.contract.errors import ConfigError
from ghostless.contract.secret_files import read_secret

ChannelOptions = list[tuple[str, str | int]]

# Calls go only to addresses that are connected; gRPC reconnects the others in the background.
_ROUND_ROBIN: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
# gRPC stores a request until it is answered so that it can retry it, but not if it is larger than this. The default of
# 256 KiB is too small for requests with thousands of candidates.
_RETRY_BUFFER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Keepalive:
    """Pings that detect a dead connection before a request is sent over it."""

    interval_s: float = 30.0
    timeout_s: float = 5.0
    while_idle: bool = True


@dataclass(frozen=True)
class Tls:
    """TLS settings as PEM bytes. Without `root`, the system's certificate authorities are trusted; `certificate` and
    `key` are for mutual TLS. `Tls.from_files` reads them from files.

    `server_name` is the name in the server's certificate, if it is not the host of the (first) address.
    """

    root: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    server_name: str = ""

    @classmethod
    def from_files(
        cls,
        root: Path | str | None = None,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        server_name: str = "",
    ) -> Self:
        """From PEM files; ConfigError if one can't be read, or others can read the key."""
        if (certificate is None) != (key is None):
            raise ConfigError("a client certificate and its key must be given together")
        return cls(
            None if root is None else _read(Path(root)),
            None if certificate is None else _read(Path(certificate)),
            None if key is None else read_secret(Path(key), "the client's key"),
            server_name,
        )

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.root, self.key, self.certificate)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def check_token_is_private(addresses: tuple[str, ...], tls: Tls | None) -> None:
    """ConfigError if a token would travel over a network as plain text."""
    exposed = [address for address in addresses if not _is_local(address)]
    if tls is None and exposed:
        raise ConfigError(
            f"the token would be sent to {exposed[0]} as plain text; give tls, for example tls=Tls.from_files('ca.pem')"
        )


def _is_local(address: str) -> bool:
    """Whether it leads to this machine only."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]") or address
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_list(addresses: str | Sequence[str]) -> tuple[str, ...]:
    """Parse one address, a comma-separated string, or a sequence of either."""
    texts = (addresses,) if isinstance(addresses, str) else addresses
    found = tuple(address.strip() for text in texts for address in text.split(",") if address.strip())
    if not found:
        raise ConfigError("no address given; expected host:port, for example localhost:8500")
    return found


def target(addresses: tuple[str, ...]) -> str:
    """The target that gRPC connects to.

    gRPC resolves a single address itself, balances over all addresses of its name and follows DNS changes. In a list,
    gRPC accepts only numeric addresses, so the names are resolved here, once.
    """
    if len(addresses) == 1:
        return addresses[0]
    resolved = {address: _resolve(address) for address in addresses}
    reached = [numeric for numerics in resolved.values() for numeric in numerics]
    if not reached:
        raise ConfigError(f"none of these addresses can be resolved: {', '.join(addresses)}")
    # In a list, all addresses must be of one family; a name that has both can be reached through either.
    v4 = [f"{host}:{port}" for family, host, port in reached if family == socket.AF_INET]
    v6 = [f"[{host}]:{port}" for family, host, port in reached if family == socket.AF_INET6]
    return "ipv4:" + ",".join(dict.fromkeys(v4)) if v4 else "ipv6:" + ",".join(dict.fromkeys(v6))


def _resolve(address: str) -> list[tuple[socket.AddressFamily, str, int]]:
    """Numeric addresses of a name; none if it does not resolve, because the rest of the list can still be used."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ConfigError(f"address {address!r} is not host:port")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [
        (family, str(where[0]), int(where[1]))
        for family, _, _, _, where in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]


def channel_options(
    addresses: tuple[str, ...], retry: RetryPolicy, keepalive: Keepalive, tls: Tls | None
) -> ChannelOptions:
    options: ChannelOptions = [
        ("grpc.service_config", json.dumps(_ROUND_ROBIN | retry_config(retry))),
        ("grpc.per_rpc_retry_buffer_size", _RETRY_BUFFER_BYTES),
        # Without this option, all channels of a process to one address share one connection, and thus one worker.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.keepalive_time_ms", round(keepalive.interval_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(keepalive.timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", int(keepalive.while_idle)),
        ("grpc.http2.max_pings_without_data", 0),
        # When a server comes back, a ranking service can't wait for gRPC's default of a second or more.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 5000),
        # A response with all outputs of thousands of candidates exceeds gRPC's default of 4 MB.
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    if tls is not None:
        name = tls.server_name or (addresses[0].rpartition(":")[0] if len(addresses) > 1 else "")
        if name:
            options.append(("grpc.ssl_target_name_override", name))
    return options
