"""More rows: header blocks (RFC 7541, and RFC 9113 where it speaks of blocks), and what must be ignored."""

from hpack import Decoder

from ghostless.contract import http2_frames as f
from tests.support.http2_peer import raw_frame
from tests.support.http2_rows import (
    AUTHORITY,
    CALM,
    COMPRESSION,
    HEAD,
    METHOD,
    PATH,
    SCHEME,
    Row,
    block,
    connection,
    data,
    headers,
    stream,
)

_BLOCK = block(HEAD)
_4_KB = b"\x00\x01n\x7f\xa1\x1e" + b"x" * 4000
# The entry of the table that was there before those that _BLOCK adds.
_decoder = Decoder()
_decoder.decode(_BLOCK)
_BEFORE_THAT = bytes((0x80 | 62 + len(_decoder.header_table.dynamic_entries),))
_RESERVED = 1 << 31
_ONE = 1 | _RESERVED


def _undecodable(section: str, rule: str, fields: bytes) -> Row:
    wire = raw_frame(f.HEADERS, f.END_HEADERS, 1, _BLOCK + fields)
    return Row(f"7541, {section}", rule, wire, connection(COMPRESSION), "PROTOCOL_ERROR")


def _pieces(*pieces: bytes) -> bytes:
    """A block in a HEADERS frame and CONTINUATION frames."""
    last = len(pieces) - 1
    return b"".join(
        raw_frame(f.CONTINUATION if place else f.HEADERS, f.END_HEADERS if place == last else 0, 1, piece)
        for place, piece in enumerate(pieces)
    )


HPACK = [
    _undecodable("2.3.3", "index 0", b"\x80"),
    _undecodable("2.3.3", "an index beyond the table", b"\xff\x80\x01"),
    _undecodable("2.3.3", "a name of an index beyond the table", b"\x7f\x80\x01\x01x"),
    _undecodable("6.2.2", "a name of an index beyond the table, not indexed", b"\x0f\x80\x01\x01x"),
    _undecodable("6.2.3", "a name of an index beyond the table, never indexed", b"\x1f\x80\x01\x01x"),
    _undecodable("4.4", "an index of an entry larger than the table", b"\x40\x01n\x7f\x83\x1f" + b"x" * 4098 + b"\xbe"),
    _undecodable("4.2", "a size of the table after a field", b"\x20"),
    _undecodable("5.1", "a number that breaks off", b"\xff"),
    _undecodable("5.1", "a number of 80 bits", b"\xff" + b"\xff" * 11 + b"\x0f"),
    _undecodable("5.2", "a name that breaks off", b"\x00\x05nam"),
    _undecodable("5.2", "a value that breaks off", b"\x00\x01n\x05val"),
    _undecodable("5.2", "Huffman padding of 8 bits", b"\x00\x01n\x81\xff"),
    _undecodable("5.2", "Huffman padding of zeros", b"\x00\x01n\x81\x00"),
    _undecodable("5.2", "the end of the string as a Huffman code", b"\x00\x01n\x84\xff\xff\xff\xff"),
    Row("7541, 6.3", "a size of the table at the beginning", headers(1, HEAD, lead=b"\x20\x3f\xe1\x1f"), None),
    _undecodable("5.2", "Huffman padding of 8 bits in a name", b"\x00\x81\xff\x01v"),
    Row(
        "7541, 4.3",
        "an index of an entry that a smaller table evicted",
        raw_frame(f.HEADERS, f.END_HEADERS, 1, _BLOCK + b"\x40\x01n\x01v")
        + raw_frame(f.HEADERS, f.END_HEADERS, 3, b"\x20\x3f\xe1\x1f\xbe"),
        connection(COMPRESSION),
        "PROTOCOL_ERROR",
    ),
    Row(
        "4.3",
        "the block of a malformed request counts for the table",
        raw_frame(f.HEADERS, f.END_HEADERS, 1, _BLOCK + b"\x40\x01n\x01v\x00\x02te\x01x")
        + raw_frame(f.HEADERS, f.END_HEADERS, 3, _BLOCK + _BEFORE_THAT),
        stream(),
    ),
    Row(
        "4.3",
        "the block of a stream that the server reset counts for the table",
        raw_frame(f.HEADERS, f.END_HEADERS, 1, _BLOCK + b"\x00\x02te\x01x")
        + raw_frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 1, b"\x40\x01n\x01v")
        + raw_frame(f.HEADERS, f.END_HEADERS, 3, _BLOCK + _BEFORE_THAT),
        stream(),
    ),
    Row(
        "7541, 6.2.3",
        "a field that is never indexed",
        raw_frame(f.HEADERS, f.END_HEADERS, 1, _BLOCK + b"\x10\x01n\x01v"),
        None,
    ),
    Row(
        "7541, 2.3.2",
        "an index of the entry that was added last",
        raw_frame(f.HEADERS, f.END_HEADERS, 1, _BLOCK + b"\x40\x01n\x01v\xbe"),
        None,
    ),
    Row("4.3", "a block in three pieces, one empty", _pieces(_BLOCK[:3], b"", _BLOCK[3:]), None),
    Row("8.3", "an empty block", raw_frame(f.HEADERS, f.END_HEADERS, 1), stream()),
    Row("10.5.1", "a list of fields over its limit, which is answered", _pieces(_BLOCK, *[_4_KB] * 5), None),
    Row("10.5.1", "a list of fields over twice its limit", _pieces(_BLOCK, *[_4_KB] * 9), connection(CALM), "accepted"),
]

IGNORED = [
    Row("4.1", "the reserved bit of a stream's number", headers(_ONE) + data(_ONE, f.END_STREAM), None),
    Row("4.1", "flags that PING does not have", raw_frame(f.PING, 0xFE, 0, bytes(8)), None),
    Row("4.1", "flags that DATA does not have", headers() + data(1, 0xF6), None),
    Row(
        "6.9",
        "the reserved bit of an increment",
        raw_frame(f.WINDOW_UPDATE, 0, 0, b"\x80\0\0\1"),
        None,
        "PROTOCOL_ERROR",
    ),
    Row("6.8", "GOAWAY with words", raw_frame(f.GOAWAY, 0, 0, bytes(8) + b"bye"), None),
    Row("6.5.3", "an acknowledgement of settings", raw_frame(f.SETTINGS, f.ACK, 0), None),
    Row("8.2.3", "a cookie in crumbs", headers(1, [*HEAD, ("cookie", "a=b"), ("cookie", "c=d")]), None),
    Row("8.3.1", "OPTIONS of *", headers(1, [(":method", "OPTIONS"), SCHEME, (":path", "*"), AUTHORITY]), None),
    Row(
        "8.5",
        "CONNECT, which is answered with 405",
        headers(1, [(":method", "CONNECT"), AUTHORITY]),
        None,
    ),
    Row("8.3.1", "no :authority", headers(1, [METHOD, SCHEME, PATH, HEAD[-1]]), None, "PROTOCOL_ERROR"),
]
