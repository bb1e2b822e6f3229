"""An attacker's side of a TLS connection: it checks no certificate, and writes records as small as they can be."""

import socket
import ssl
from functools import cache

# A server that does not answer within this time, or a sink, is left.
HANDSHAKE_S = 1.0
_READ_BYTES = 1 << 16


@cache
def careless_context() -> ssl.SSLContext:
    """Takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class TlsWire:
    """Made by a handshake on a blocking socket; OSError if that fails."""

    def __init__(self, sock: socket.socket) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = careless_context().wrap_bio(self._incoming, self._outgoing)
        sock.settimeout(HANDSHAKE_S)
        while not self._shake_hands(sock):
            received = sock.recv(_READ_BYTES)
            if not received:
                raise ConnectionError("the server closed the connection")
            self._incoming.write(received)

    def _shake_hands(self, sock: socket.socket) -> bool:
        try:
            self._tls.do_handshake()
            is_complete = True
        except ssl.SSLWantReadError:
            is_complete = False
        if self._outgoing.pending:
            sock.sendall(self._outgoing.read())
        return is_complete

    def seal(self, data: bytes) -> bytes:
        """A record for each byte."""
        for at in range(len(data)):
            self._tls.write(data[at : at + 1])
        return self._outgoing.read()

    def open(self, received: bytes) -> bytes:
        """What the server sent, as far as it is complete."""
        self._incoming.write(received)
        data = bytearray()
        try:
            while self._incoming.pending or self._tls.pending():
                data += self._tls.read(_READ_BYTES)
        except ssl.SSLError:
            """The rest of a record is to come, or none is."""
        return bytes(data)
