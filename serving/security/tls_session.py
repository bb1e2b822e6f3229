"""One side of a TLS connection without its socket: ciphertext in, plaintext out, and the other way round.

ssl.SSLSocket makes two system calls for each record of 16 kB that it reads, and one for each that it writes. In memory
a burst of records comes and goes in one. Not for two threads at once: OpenSSL allows no read beside a write.
"""

import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

# The most that one record holds, and what surrounds it (RFC 8446, section 5.2).
RECORD_BYTES = (1 << 14) + 256 + 5
# Records decrypted at a time. A record takes 1 us, however small it is, and 256 kB hold 11,000 records of one byte.
_RECORDS_AT_ONCE = 256
# OpenSSL takes any number of key updates (RFC 8446, section 4.6.3), 27 bytes each, before it returns. So ciphertext is
# handed to it in pieces of this size, and what came beyond data and the usual _OVERHEAD of its records is counted: more
# than _MOST_WASTE, which the beginning of a record may be, is a flood. Padding counts, too; no client of HTTP/2 pads.
_PIECE_BYTES = 1 << 15
_OVERHEAD = 40
_MOST_WASTE = 1 << 16
_NOTHING = memoryview(b"")


class TlsSession:
    """The server's side. `is_closed`: the client has said that it sends no more. `has_unread`: `read_into` left
    records, because there were many."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_closed = False
        self.has_unread = False
        # Ciphertext that OpenSSL has not got yet.
        self._rest = _NOTHING
        self._waste = 0

    @property
    def is_flooded(self) -> bool:
        """Whether the client sent too many records without data."""
        return self._waste > _MOST_WASTE

    @property
    def protocol(self) -> str | None:
        """What ALPN agreed on, after the handshake."""
        return self._tls.selected_alpn_protocol()

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's certificate (DER) that was verified in the handshake; None: it sent none."""
        return self._tls.getpeercert(binary_form=True)

    def handshake(self) -> bool:
        """As far as it gets with what came; whether it is complete. ssl.SSLError if it failed."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, ciphertext: memoryview | bytes) -> None:
        """From the socket; empty: it was closed."""
        if not ciphertext:
            self._incoming.write_eof()
        elif len(ciphertext) <= _PIECE_BYTES:
            self._incoming.write(ciphertext)
            self._waste += len(ciphertext)
        else:
            self._rest = memoryview(bytes(ciphertext))  # the caller uses its buffer again

    def read_into(self, buffer: memoryview) -> int:
        """Plaintext of what was fed, if the buffer has room for it and for a record more; of small records, only of the
        first ones."""
        taken, left = 0, _RECORDS_AT_ONCE
        while True:
            got, read = self._read_records(buffer[taken:] if taken else buffer, left)
            taken += got
            left -= read
            self._waste = max(0, self._waste - got - _OVERHEAD * read)
            if not self._rest or not left or self.is_closed or self.is_flooded:
                break
            piece, self._rest = self._rest[:_PIECE_BYTES], self._rest[_PIECE_BYTES:]
            self._incoming.write(piece)
            self._waste += len(piece)
        self.has_unread = not left and bool(self._incoming.pending or self._rest)
        return taken

    def _read_records(self, buffer: memoryview, most: int) -> tuple[int, int]:
        """Bytes and records."""
        taken = read = 0
        try:
            while read < most and (self._incoming.pending or self._tls.pending()):
                # Its stub says bytes, which it returns only where it is given no buffer.
                got = cast(int, self._tls.read(len(buffer) - taken, buffer[taken:]))
                if not got:
                    self.is_closed = True
                    break
                taken += got
                read += 1
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self.is_closed = True
        return taken, read

    def seal(self, parts: Sequence[bytes | memoryview], most: int) -> int:
        """Encrypt the first `most` bytes of `parts`, or all; how many bytes of plaintext that were.

        Joined first: a record for each part would cost more than the copy.
        """
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(data) > most:
            data = memoryview(data)[:most]
        done = self._tls.write(data)
        while done < len(data):
            done += self._tls.write(memoryview(data)[done:])
        return len(data)

    @property
    def has_output(self) -> bool:
        return bool(self._outgoing.pending)

    def take(self) -> bytes:
        """Ciphertext to be sent."""
        return self._outgoing.read()

    def close(self) -> None:
        """Say that nothing more comes."""
        # The client has not said so yet, or the handshake is not complete.
        with suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
