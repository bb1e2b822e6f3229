"""An attacker's side of a TLS connection: it checks no certificate, and writes the smallest possible records."""

import socket
import ssl
import struct
import tempfile
from functools import cache

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

# An attacker disconnects from a server that does not answer within this time, such as the sink. A server delays the
# closing of rejected connections by a second; this is longer.
HANDSHAKE_S = 2.5
_READ_BYTES = 1 << 16


_HANDSHAKE, _DATA = 22, 23
# RFC 8446, section 4.6.3: a key update that requests one in return.
_KEY_UPDATE = b"\x18\0\0\x01\x01"
_UPDATES = 256


@cache
def careless_context() -> ssl.SSLContext:
    """A context that accepts any certificate."""
    return _careless_context()


def _careless_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class TlsWire:
    """Does the handshake on a blocking socket when it is created; raises OSError if that fails."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = (context or careless_context()).wrap_bio(self._incoming, self._outgoing)
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
        """The data with a record for each byte."""
        for at in range(len(data)):
            self._tls.write(data[at : at + 1])
        return self._outgoing.read()

    def open(self, received: bytes) -> bytes:
        """The decrypted data of the server, as far as its records are complete."""
        self._incoming.write(received)
        data = bytearray()
        try:
            while self._incoming.pending or self._tls.pending():
                data += self._tls.read(_READ_BYTES)
        except ssl.SSLError:
            """The rest of a record is to come, or none is."""
        return bytes(data)


class KeyUpdates(TlsWire):
    """Writes its records without OpenSSL, which does not send key updates. Each update changes the key of the next
    record."""

    def __init__(self, sock: socket.socket) -> None:
        with tempfile.NamedTemporaryFile("r") as log:
            context = _careless_context()
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.keylog_filename = log.name
            super().__init__(sock, context)
            secrets = dict(line.split()[::2] for line in log.read().splitlines() if line and not line.startswith("#"))
        self._secret = bytes.fromhex(secrets["CLIENT_TRAFFIC_SECRET_0"])
        self._hash = hashes.SHA384() if len(self._secret) == hashes.SHA384.digest_size else hashes.SHA256()
        self._key_bytes = 16 if "128" in str(self._tls.cipher()) else 32
        self._use_key()

    def seal(self, data: bytes) -> bytes:
        """The data, followed by key updates."""
        records = [self._record(_DATA, data)]
        for _ in range(_UPDATES):
            records.append(self._record(_HANDSHAKE, _KEY_UPDATE))
            self._secret = self._expand("traffic upd", len(self._secret))
            self._use_key()
        return b"".join(records)

    def _use_key(self) -> None:
        self._cipher = AESGCM(self._expand("key", self._key_bytes))
        self._iv = int.from_bytes(self._expand("iv", 12))
        self._number = 0

    def _record(self, kind: int, content: bytes) -> bytes:
        header = struct.pack(">BHH", _DATA, 0x0303, len(content) + 17)
        nonce = (self._iv ^ self._number).to_bytes(12)
        self._number += 1
        return header + self._cipher.encrypt(nonce, content + bytes((kind,)), header)

    def _expand(self, label: str, size: int) -> bytes:
        """HKDF-Expand-Label without a context (RFC 8446, section 7.1)."""
        name = b"tls13 " + label.encode()
        info = struct.pack(">HB", size, len(name)) + name + b"\0"
        return HKDFExpand(self._hash, size, info).derive(self._secret)
