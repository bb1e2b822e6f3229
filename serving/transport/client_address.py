"""How a client is named by the address of its connection."""

import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.transport.tls_socket import TlsSocket

# Prefix length that identifies an IPv6 client: one customer has at least this network.
_IPV6_NETWORK = 64


def peer_of(address: object) -> str:
    """The key by which connection limits count the connections of a client; empty for Unix sockets, whose clients can't
    be told apart."""
    if not isinstance(address, tuple):
        return ""
    host = str(address[0]).removeprefix("::ffff:")  # an IPv4 client on an IPv6 socket
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], _IPV6_NETWORK), strict=False))


def peer_in_grpc_notation(sock: "socket.socket | TlsSocket") -> str:
    """The address of a connection's client, as gRPC writes it in `ServicerContext.peer`."""
    try:
        address = sock.getpeername()
    except OSError:
        return "unknown"
    if sock.family == socket.AF_UNIX:
        return f"unix:{address}"
    return f"ipv{6 if sock.family == socket.AF_INET6 else 4}:{address[0]}:{address[1]}"
