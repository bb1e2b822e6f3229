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
# OpenSSL processes any number of key updates (RFC 8446, section 4.6.3) before it returns, and each takes 100 us. So it
# gets a few records at a time, and those without data are counted: more than _MOST_BARREN, and one for every
# _DATA_PER_BARREN records with data, are a flood.
_RECORDS_FED = 16
_MOST_BARREN = 32
_DATA_PER_BARREN = 64
_READ_COUNTS = 1 + 1 / _DATA_PER_BARREN
_HEADER_BYTES = 5


class TlsSession:
    """The server's side. `is_closed`: the client has said that it sends no more. `has_unread`: `read_into` left
    records, because there were many."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_closed = False
        self.has_unread = False
        # Ciphertext that OpenSSL has not got yet, and what is missing of the last record that it has got.
        self._rest = b""
        self._missing = 0
        self._barren = 0.0

    @property
    def is_flooded(self) -> bool:
        """Whether the client sent too many records without data."""
        return self._barren > _MOST_BARREN

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
        while True:
            records = self._pass_on(_RECORDS_FED)
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if records < _RECORDS_FED:
                    return False
            else:
                return True

    def feed(self, ciphertext: memoryview | bytes) -> None:
        """From the socket; empty: it was closed."""
        if ciphertext:
            self._rest += bytes(ciphertext)  # a copy, because the caller uses its buffer again
        else:
            self._incoming.write_eof()

    def _pass_on(self, most_records: int) -> int:
        """Give OpenSSL what was fed, up to a number of records; returns how many began. The beginning of a record's
        header waits for its rest."""
        rest, records = self._rest, 0
        at = min(self._missing, len(rest))
        self._missing -= at
        while records < most_records and len(rest) - at >= _HEADER_BYTES:
            end = at + _HEADER_BYTES + (rest[at + 3] << 8 | rest[at + 4])
            records += 1
            if end > len(rest):
                self._missing = end - len(rest)
                end = len(rest)
            at = end
        if at:
            self._incoming.write(rest if at == len(rest) else rest[:at])
            self._rest = rest[at:]
        return records

    def read_into(self, buffer: memoryview) -> int:
        """Plaintext of what was fed, if the buffer has room for it and for a record more; of small records, only of the
        first ones."""
        taken = 0
        for _ in range(_RECORDS_AT_ONCE // _RECORDS_FED):
            records = self._pass_on(_RECORDS_FED)
            got, read = self._read_records(buffer[taken:] if taken else buffer)
            taken += got
            self._barren = max(0.0, self._barren + records - read * _READ_COUNTS)
            if len(self._rest) < _HEADER_BYTES or self.is_closed or self.is_flooded:
                break
        self.has_unread = len(self._rest) >= _HEADER_BYTES
        return taken

    def _read_records(self, buffer: memoryview) -> tuple[int, int]:
        """Bytes and records with data."""
        taken = read = 0
        try:
            while self._incoming.pending or self._tls.pending():
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
