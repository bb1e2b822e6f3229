"""The address of a client in gRPC's notation."""

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.transport.tls_socket import TlsSocket


def peer_in_grpc_notation(sock: "socket.socket | TlsSocket") -> str:
    """The address of a connection's client, as gRPC writes it in `ServicerContext.peer`."""
    try:
        address = sock.getpeername()
    except OSError:
        return "unknown"
    if sock.family == socket.AF_UNIX:
        return f"unix:{address}"
    return f"ipv{6 if sock.family == socket.AF_INET6 else 4}:{address[0]}:{address[1]}"
