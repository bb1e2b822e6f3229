"""Header blocks: a call's head from those that clients send, and the few that a server answers with.

Decoding is the hpack package's work. A client's calls mostly have equal heads, and once its header table has settled
equal blocks mean equal heads, so that a block is decoded once and then looked up.
"""

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from hpack import Decoder, HPACKError, OversizedHeaderListError

from ghostless.contract import http2_frames as frames
from serving.http2.errors import Closing, ConnectionFault
from serving.http2.fields import Field, MalformedError, check_trailers, content_length, request_fields
from serving.http2.limits import Limits

Metadata = tuple[tuple[str, str | bytes], ...]

# Of the transport, not of the call.
_NOT_METADATA = frozenset((b"te", b"content-type", b"content-length", b"grpc-accept-encoding"))
_TIMEOUT_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_TIMEOUT_DIGITS = 8
_FIELD_BYTES = 32
# What grpc-message may hold as it is (percent-encoded besides).
_PLAIN_TEXT = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True)
class RequestHead:
    """What the headers of one call say. `http_status` is not 200 where it is no gRPC call, and `problem` says why;
    `malformed` is not empty where it is no HTTP/2 request."""

    path: str
    timeout_s: float = math.inf
    encoding: str = "identity"
    metadata: Metadata = ()
    http_status: int = 200
    problem: str = ""
    malformed: str = ""
    content_length: int | None = None
    # Of all fields, as RFC 9113, section 6.5.2, counts them.
    size: int = 0


class HeadReader:
    """Reads the header blocks of one connection, in the order they came. Every block must be read, also those of
    streams that are closed, for the table that later ones refer to; one that is `known` need not."""

    def __init__(self, limits: Limits) -> None:
        self._decoder = Decoder(limits.max_block_bytes)
        self._max_heads = limits.max_cached_heads
        self._max_head_bytes = limits.max_cached_head_bytes
        self.known: dict[bytes, RequestHead] = {}  # by block, as long as the table stays as it is
        self._known_bytes = 0

    def read(self, block: bytes) -> RequestHead:
        table = self._decoder.header_table
        entries = table.dynamic_entries
        # Held on to, so that another entry in front can't be taken for it.
        before = (len(entries), entries[0] if entries else None, table.maxsize)
        head = request_head(self._decode(block))
        size, first, maxsize = before
        # Entries only ever come in front.
        unchanged = len(entries) == size and table.maxsize == maxsize and (not size or entries[0] is first)
        stored_bytes = self._known_bytes + len(block) + head.size
        if not unchanged or len(self.known) >= self._max_heads or stored_bytes > self._max_head_bytes:
            # Another table gives equal blocks another meaning.
            self._forget()
        else:
            self.known[block] = head
            self._known_bytes = stored_bytes
        return head

    def read_trailers(self, block: bytes) -> str:
        """What makes a request's trailers malformed; empty: nothing."""
        self._forget()  # the block may change the table
        try:
            check_trailers(self._decode(block))
        except MalformedError as error:
            return str(error)
        return ""

    def _forget(self) -> None:
        self.known.clear()
        self._known_bytes = 0

    def _decode(self, block: bytes) -> Sequence[Field]:
        try:
            return list(self._decoder.decode(block, raw=True))
        except OversizedHeaderListError as error:
            most = self._decoder.max_header_list_size
            raise ConnectionFault(
                f"headers are larger than {most} bytes", frames.ENHANCE_YOUR_CALM, Closing.HEADERS
            ) from error
        except HPACKError as error:
            raise ConnectionFault(f"cannot decode a header block: {error}", frames.COMPRESSION_ERROR) from error


def request_head(fields: Sequence[Field]) -> RequestHead:
    size = sum(len(name) + len(value) for name, value in fields) + _FIELD_BYTES * len(fields)
    timeout_s, encoding, content_type = math.inf, "identity", b""
    lengths: list[bytes] = []
    metadata: list[tuple[str, str | bytes]] = []
    try:
        pseudo, others = request_fields(fields)
        for name, value in others:
            if name == b"grpc-timeout":
                timeout_s = parse_timeout(value)
            elif name == b"grpc-encoding":
                encoding = value.decode("latin-1")
            elif name == b"content-type":
                content_type = value
            elif name == b"content-length":
                lengths.append(value)
            elif name not in _NOT_METADATA:
                metadata.append(_metadata(name, value))
        length = content_length(lengths)
    except MalformedError as error:
        return RequestHead("", malformed=str(error), size=size)
    path = pseudo.get(b":path", b"").decode("latin-1")
    if pseudo[b":method"] != b"POST":
        return RequestHead(path, http_status=405, problem="gRPC calls are POST requests", size=size)
    if not content_type.startswith(b"application/grpc"):
        problem = "the content-type of a gRPC call is application/grpc"
        return RequestHead(path, http_status=415, problem=problem, size=size)
    return RequestHead(path, timeout_s, encoding, tuple(metadata), content_length=length, size=size)


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
