"""Header blocks: a call's head from those that clients send, and the few that a server answers with.

Decoding is the hpack package's work. A client's calls mostly have equal heads, and once its header table has settled
equal blocks mean equal heads, so that a block is decoded once and then looked up.
"""

import base64
import binascii
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from hpack import Decoder, HPACKError, OversizedHeaderListError

from ghostless.contract import http2_frames as frames
from serving.http2.errors import ConnectionFault

Metadata = tuple[tuple[str, str | bytes], ...]

MAX_HEADER_BYTES = 16_384
_MAX_CACHED_HEADS = 256
# Of the transport, not of the call.
_NOT_METADATA = frozenset((b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"))
_TIMEOUT_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_TIMEOUT_DIGITS = 8
# What grpc-message may hold as it is (percent-encoded besides).
_PLAIN_TEXT = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True)
class RequestHead:
    """What the headers of one call say. `http_status` is not 200 where it is no gRPC call, and `problem` says why."""

    path: str
    timeout_s: float = math.inf
    encoding: str = "identity"
    metadata: Metadata = ()
    http_status: int = 200
    problem: str = ""


class HeadReader:
    """Reads the header blocks of one connection, in the order they came."""

    def __init__(self) -> None:
        self._decoder = Decoder(MAX_HEADER_BYTES)
        self._heads: dict[bytes, RequestHead] = {}

    def read(self, block: bytes) -> RequestHead:
        known = self._heads.get(block)
        if known is not None:
            return known
        table = self._decoder.header_table
        entries = table.dynamic_entries
        # Held on to, so that another entry in front can't be taken for it.
        before = (len(entries), entries[0] if entries else None, table.maxsize)
        try:
            fields = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError as error:
            raise ConnectionFault(f"headers of more than {MAX_HEADER_BYTES} bytes", frames.ENHANCE_YOUR_CALM) from error
        except HPACKError as error:
            raise ConnectionFault(f"a header block can't be read: {error}", frames.COMPRESSION_ERROR) from error
        head = request_head(fields)
        size, first, maxsize = before
        # Entries only ever come in front.
        unchanged = len(entries) == size and table.maxsize == maxsize and (not size or entries[0] is first)
        if not unchanged or len(self._heads) >= _MAX_CACHED_HEADS:
            # Another table gives equal blocks another meaning.
            self._heads.clear()
        else:
            self._heads[block] = head
        return head


def request_head(fields: Iterable[tuple[bytes, bytes]]) -> RequestHead:
    method = path = content_type = b""
    timeout_s, encoding = math.inf, "identity"
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name.startswith(b":"):
            if name == b":path":
                path = value
            elif name == b":method":
                method = value
        elif name == b"grpc-timeout":
            timeout_s = parse_timeout(value)
        elif name == b"grpc-encoding":
            encoding = value.decode("latin-1")
        elif name == b"content-type":
            content_type = value
        elif name not in _NOT_METADATA:
            metadata.append(_metadata(name, value))
    text = path.decode("latin-1")
    if method != b"POST":
        return RequestHead(text, http_status=405, problem="gRPC calls are POST requests")
    if not content_type.startswith(b"application/grpc"):
        return RequestHead(text, http_status=415, problem="the content-type of a gRPC call is application/grpc")
    return RequestHead(text, timeout_s, encoding, tuple(metadata))


def parse_timeout(text: bytes) -> float:
    """Seconds; what can't be read sets no deadline, as gRPC's own servers have it."""
    digits, unit = text[:-1], text[-1:].decode("latin-1")
    if not digits.isdigit() or len(digits) > _MAX_TIMEOUT_DIGITS or unit not in _TIMEOUT_UNITS:
        return math.inf
    return int(digits) * _TIMEOUT_UNITS[unit]


def _metadata(name: bytes, value: bytes) -> tuple[str, str | bytes]:
    key = name.decode("latin-1")
    if not key.endswith("-bin"):
        return key, value.decode("latin-1")
    try:
        # Clients may leave out the padding.
        return key, base64.b64decode(value + b"=" * (-len(value) % 4))
    except binascii.Error:
        return key, value


def _literal(name: str, value: str) -> bytes:
    """A field that leaves the client's table as it is (RFC 7541, section 6.2.2), its texts not compressed."""
    return b"\x00" + _text(name.encode()) + _text(value.encode())


def _text(text: bytes) -> bytes:
    """Its length in 7 bits, or in as many groups of 7 as it takes, before it."""
    size = len(text)
    if size < 0x7F:
        return bytes((size,)) + text
    size -= 0x7F
    length = bytearray((0x7F,))
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes(length) + text


_STATUS_200 = b"\x88"  # an entry of the static table
ANSWER_HEADERS = _STATUS_200 + _literal("content-type", "application/grpc")
OK_TRAILERS = _literal("grpc-status", "0")
EMPTY_TABLE = b"\x20"  # says at the head of a block that the table has no room (RFC 7541, section 6.3)


@lru_cache(maxsize=256)
def trailers(code: int, details: str, metadata: Metadata = ()) -> bytes:
    """How a call ended."""
    block = _literal("grpc-status", str(code))
    if details:
        block += _literal("grpc-message", quote(details, safe=_PLAIN_TEXT))
    for name, value in metadata:
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        block += _literal(name, text)
    return block


def http_error(status: int, why: str) -> bytes:
    """To a client that does not speak gRPC."""
    text = str(status)
    return _literal(":status", text) + _literal("content-type", "text/plain") + _literal("grpc-message", why)
