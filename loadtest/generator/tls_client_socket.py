"""A client's socket with TLS: as much of a non-blocking socket as a connection of the load generator uses."""

import socket
import ssl

_CONNECT_TIMEOUT_S = 10.0
# The most that one record holds. With room for that a read takes whole records, and nothing is left where select
# would not see it.
_RECORD_BYTES = 1 << 14


def client_context(authorities: str) -> ssl.SSLContext:
    """`authorities`: a PEM file."""
    context = ssl.create_default_context(cafile=authorities)
    context.set_alpn_protocols(["h2"])
    return context


class TlsClientSocket:
    """Connected and past its handshake, which is waited for; OSError if that fails."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, server_name: str) -> None:
        plain = socket.create_connection(address, _CONNECT_TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket = context.wrap_socket(plain, server_hostname=server_name)
        except OSError:
            plain.close()
            raise
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, wire: bytes | bytearray) -> int:
        try:
            return self._socket.send(wire)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv_into(self, buffer: memoryview) -> int:
        taken = 0
        try:
            while len(buffer) - taken >= _RECORD_BYTES:
                size = self._socket.recv_into(buffer[taken:])
                if not size:
                    break
                taken += size
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not taken:
                raise BlockingIOError from None
        return taken

    def close(self) -> None:
        self._socket.close()
