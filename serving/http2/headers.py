"""Header blocks: decodes those of clients into a call's head, and encodes the few that a server sends.

The hpack package decodes them. Most calls of a client have equal heads, and once its header table has settled, equal
blocks mean equal heads. So a block is decoded once and then looked up.
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
from serving.http2.budget import Budget
from serving.http2.errors import Closing, ConnectionFault
from serving.http2.fields import Field, MalformedError, check_trailers, content_length, request_fields
from serving.http2.limits import Limits

Metadata = tuple[tuple[str, str | bytes], ...]

# Fields of the transport, which are not metadata of the call.
_NOT_METADATA = frozenset((b"te", b"content-type", b"content-length", b"grpc-accept-encoding"))
_TIMEOUT_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_TIMEOUT_DIGITS = 8
_FIELD_BYTES = 32
# Memory of a field of metadata, in addition to what _FIELD_BYTES counts: a tuple and two strings.
_FIELD_MEMORY = 130
# Cost of decoding a block: 100 us, 3 us per field, because one byte may refer to a field of the table, and for Huffman
# codes 120 us per kB. In units of the budget, and of a turn's work.
_FIELDS_PER_BUDGET_FRAME, _BYTES_PER_BUDGET_FRAME = 16, 256
_WORK, _FIELDS_PER_WORK, _BYTES_PER_WORK = 2, 8, 128
# Characters that grpc-message may contain unescaped; others are percent-encoded.
_PLAIN_TEXT = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True)
class RequestHead:
    """The headers of one call. `http_status` is not 200 if it is not a gRPC call, and `problem` says why; `malformed`
    is not empty if it is not a valid HTTP/2 request."""

    path: str
    timeout_s: float = math.inf
    encoding: str = "identity"
    metadata: Metadata = ()
    http_status: int = 200
    problem: str = ""
    malformed: str = ""
    content_length: int | None = None
    # Size of all fields as defined by RFC 9113, section 6.5.2.
    size: int = 0

    @property
    def held_bytes(self) -> int:
        """Approximate memory that it uses: an empty field counts 32 bytes in `size`, and takes five times as much."""
        return self.size + _FIELD_MEMORY * len(self.metadata)


class HeadReader:
    """Reads the header blocks of one connection, in their order. Every block must be read, even on closed streams,
    because later ones refer to the table; only a `known` block need not be."""

    def __init__(self, limits: Limits, budget: Budget) -> None:
        """Decoding spends from `budget`."""
        self._budget = budget
        self._decoder = Decoder(limits.max_block_bytes)
        self._max_heads = limits.max_cached_heads
        self._max_head_bytes = limits.max_cached_head_bytes
        self.known: dict[bytes, RequestHead] = {}  # by block, valid as long as the table does not change
        self._known_bytes = 0
        # Work of the last block that was decoded, counted towards the turn.
        self.work = 0

    def read(self, block: bytes) -> RequestHead:
        table = self._decoder.header_table
        entries = table.dynamic_entries
        # Keep a reference to the first entry, so that a new one can't have the same identity.
        before = (len(entries), entries[0] if entries else None, table.maxsize)
        head = request_head(self._decode(block))
        size, first, maxsize = before
        # New entries are always added at the front.
        unchanged = len(entries) == size and table.maxsize == maxsize and (not size or entries[0] is first)
        stored_bytes = self._known_bytes + len(block) + head.held_bytes
        if not unchanged or len(self.known) >= self._max_heads or stored_bytes > self._max_head_bytes:
            # With a changed table, equal blocks have another meaning.
            self._forget()
        else:
            self.known[block] = head
            self._known_bytes = stored_bytes
        return head

    def read_trailers(self, block: bytes) -> str:
        """Why the trailers of a request are malformed; empty if they are not."""
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
        self._budget.spend(len(block) // _BYTES_PER_BUDGET_FRAME)
        try:
            fields = list(self._decoder.decode(block, raw=True))
        except OversizedHeaderListError as error:
            most = self._decoder.max_header_list_size
            raise ConnectionFault(
                f"headers are larger than {most} bytes", frames.ENHANCE_YOUR_CALM, Closing.HEADERS
            ) from error
        except HPACKError as error:
            raise ConnectionFault(f"cannot decode a header block: {error}", frames.COMPRESSION_ERROR) from error
        self._budget.spend(len(fields) // _FIELDS_PER_BUDGET_FRAME)
        self.work = _WORK + len(fields) // _FIELDS_PER_WORK + len(block) // _BYTES_PER_WORK
        return fields


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
    """The timeout in seconds; an invalid one sets no deadline, as in gRPC's own servers."""
    digits, unit = text[:-1], text[-1:].decode("latin-1")
    if not digits.isdigit() or len(digits) > _MAX_TIMEOUT_DIGITS or unit not in _TIMEOUT_UNITS:
        return math.inf
    return int(digits) * _TIMEOUT_UNITS[unit]


def _metadata(name: bytes, value: bytes) -> tuple[str, str | bytes]:
    key = name.decode("latin-1")
    if not key.endswith("-bin"):
        return key, value.decode("latin-1")
    try:
        # Clients may omit the padding.
        return key, base64.b64decode(value + b"=" * (-len(value) % 4))
    except binascii.Error:
        return key, value


def _literal(name: str, value: str) -> bytes:
    """A field that does not change the client's table (RFC 7541, section 6.2.2), with uncompressed strings."""
    return b"\x00" + _text(name.encode()) + _text(value.encode())


def _text(text: bytes) -> bytes:
    """A string preceded by its length, in one or more groups of 7 bits."""
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
EMPTY_TABLE = b"\x20"  # at the start of a block: the table size is 0 (RFC 7541, section 6.3)


@lru_cache(maxsize=256)
def trailers(code: int, details: str, metadata: Metadata = ()) -> bytes:
    """The trailers of a call, with its status."""
    block = _literal("grpc-status", str(code))
    if details:
        block += _literal("grpc-message", quote(details, safe=_PLAIN_TEXT))
    for name, value in metadata:
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        block += _literal(name, text)
    return block


def http_error(status: int, why: str) -> bytes:
    """The headers of an HTTP error, for a client that does not speak gRPC."""
    text = str(status)
    return _literal(":status", text) + _literal("content-type", "text/plain") + _literal("grpc-message", why)
