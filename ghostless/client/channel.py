"""From addresses to gRPC's target and channel options: round-robin, keepalive, TLS."""

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from ghostless.contract.errors import ConfigError

ChannelOptions = list[tuple[str, str | int]]

# Round-robin sends calls to connected addresses only; those that are down are tried again in the background.
_SERVICE_CONFIG = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


@dataclass(frozen=True)
class Keepalive:
    """Pings that find a dead connection before a request does."""

    interval_s: float = 30.0
    timeout_s: float = 5.0
    while_idle: bool = True


@dataclass(frozen=True)
class Tls:
    """PEM bytes. Without `root` the system's authorities count; `certificate` and `key` are for mutual TLS.

    `server_name` is the name in the server's certificate where it is not the host of the (first) address.
    """

    root: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.root, self.key, self.certificate)


def address_list(addresses: str | Sequence[str]) -> tuple[str, ...]:
    """One address, a comma-separated text, or a sequence of either."""
    texts = (addresses,) if isinstance(addresses, str) else addresses
    found = tuple(address.strip() for text in texts for address in text.split(",") if address.strip())
    if not found:
        raise ConfigError("no address given; expected host:port, for example localhost:8500")
    return found


def target(addresses: tuple[str, ...]) -> str:
    """What gRPC connects to.

    One address is left to gRPC, which resolves its name again as it changes and balances over all it stands
    for. gRPC takes a list of numeric addresses only, so the names in a list are resolved here, once.
    """
    if len(addresses) == 1:
        return addresses[0]
    resolved = {address: _resolve(address) for address in addresses}
    reached = [numeric for numerics in resolved.values() for numeric in numerics]
    if not reached:
        raise ConfigError(f"none of these addresses can be resolved: {', '.join(addresses)}")
    # One list holds one family; a name that stands for both is reached by either.
    v4 = [f"{host}:{port}" for family, host, port in reached if family == socket.AF_INET]
    v6 = [f"[{host}]:{port}" for family, host, port in reached if family == socket.AF_INET6]
    return "ipv4:" + ",".join(dict.fromkeys(v4)) if v4 else "ipv6:" + ",".join(dict.fromkeys(v6))


def _resolve(address: str) -> list[tuple[socket.AddressFamily, str, int]]:
    """Numeric addresses; none for a name that is not known (now): the others of the list still serve."""
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


def channel_options(addresses: tuple[str, ...], keepalive: Keepalive, tls: Tls | None) -> ChannelOptions:
    options: ChannelOptions = [
        ("grpc.service_config", _SERVICE_CONFIG),
        ("grpc.keepalive_time_ms", round(keepalive.interval_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(keepalive.timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", int(keepalive.while_idle)),
        ("grpc.http2.max_pings_without_data", 0),
        # A ranking service can't wait for gRPC's default of one second and more when a server comes back.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 5000),
        # Thousands of candidates with all outputs exceed gRPC's default of 4 MB.
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    if tls is not None:
        name = tls.server_name or (addresses[0].rpartition(":")[0] if len(addresses) > 1 else "")
        if name:
            options.append(("grpc.ssl_target_name_override", name))
    return options
