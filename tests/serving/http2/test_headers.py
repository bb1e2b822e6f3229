"""HeadReader keeps the heads of equal blocks; hpack's encoder, with its changing table, must not notice."""

import base64
import math
import sys
from typing import Any

import pytest
from hpack import Decoder, Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from ghostless.contract import http2_frames as frames
from serving.http2.budget import Budget, no_time
from serving.http2.errors import ConnectionFault
from serving.http2.headers import HeadReader, RequestHead, parse_timeout, request_head, trailers
from serving.http2.limits import Limits

LIMITS = Limits(1 << 20, 100)
BASE = [(":method", "POST"), (":scheme", "http"), (":path", "/a/B"), ("content-type", "application/grpc")]


def _read(heads: HeadReader, block: bytes) -> RequestHead:
    """As the protocol does."""
    return heads.known.get(block) or heads.read(block)


def _metadata(heads: HeadReader, block: bytes) -> dict[str, str | bytes]:
    return dict(_read(heads, block).metadata)


def test_equal_blocks_after_the_table_changed_are_read_anew() -> None:
    """A field inserted in front moves what the same index means."""
    heads, encoder = HeadReader(LIMITS, Budget(LIMITS, no_time)), Encoder()
    encoder.encode([])
    first = encoder.encode([*BASE, ("one", "1")])
    again = encoder.encode([*BASE, ("one", "1")])
    assert _metadata(heads, first) == _metadata(heads, again) == _metadata(heads, again) == {"one": "1"}
    index = again[-1:]  # "the newest entry"
    assert _metadata(heads, encoder.encode([*BASE, ("two", "2")])) == {"two": "2"}
    after = encoder.encode([*BASE, ("two", "2")])
    assert after[-1:] == index, "the very bytes that meant the other field"
    assert _metadata(heads, after) == {"two": "2"}


def test_a_block_that_inserts_is_never_taken_from_memory() -> None:
    """The same bytes twice insert twice, and push older fields one place on each time."""
    heads, mirror = HeadReader(LIMITS, Budget(LIMITS, no_time)), Decoder()
    inserts = b"\x40\x01a\x011"  # literal with incremental indexing
    for block in [inserts, b"\x40\x01b\x012", b"\xbf", inserts, b"\xbf", inserts, b"\xbf", b"\xbe", b"\xc0"]:
        expected = request_head(list(mirror.decode(block, raw=True)))
        assert _read(heads, block) == expected
        assert list(heads._decoder.header_table.dynamic_entries) == list(mirror.header_table.dynamic_entries)


_NAMES = st.sampled_from(["a", "b", "user", "trace-bin"])
_VALUES = st.sampled_from(["1", "2", "x" * 600, "y" * 5000])
_CALLS = st.lists(
    st.tuples(
        st.lists(st.tuples(_NAMES, _VALUES), max_size=3), st.sampled_from([None, None, None, 0, 100, 1500, 4096])
    ),
    min_size=1,
    max_size=12,
)


@given(_CALLS)
@settings(max_examples=40, deadline=None)
def test_heads_are_as_without_a_memory_under_eviction_and_size_updates(
    calls: list[tuple[list[tuple[str, str]], int | None]],
) -> None:
    heads, encoder, mirror = HeadReader(LIMITS, Budget(LIMITS, no_time)), Encoder(), Decoder(LIMITS.max_header_bytes)
    for extra, table_size in calls * 2:
        if table_size is not None:
            encoder.header_table_size = table_size
        block = encoder.encode([*BASE, *extra])
        assert _read(heads, block) == request_head(list(mirror.decode(block, raw=True)))


@given(
    st.lists(
        st.sampled_from([b"\xbe", b"\xbf", b"\xc0", b"\x40\x01a\x011", b"\x40\x01a\x012", b"\x20", b"\x3f\xe1\x1f"]),
        max_size=14,
    )
)
@settings(max_examples=300, deadline=None)
def test_hand_made_blocks_are_read_as_without_a_memory(blocks: list[bytes]) -> None:
    """Index 62 to 64, two insertions, and the table cut to nothing and made whole again."""
    heads, mirror = HeadReader(LIMITS, Budget(LIMITS, no_time)), Decoder(LIMITS.max_header_bytes)
    for block in blocks:
        try:
            expected = request_head(list(mirror.decode(block, raw=True)))
        except Exception:
            with pytest.raises(ConnectionFault):
                _read(heads, block)
            return
        assert _read(heads, block) == expected


def test_too_large_a_header_list_is_a_fault_even_from_a_small_block() -> None:
    heads = HeadReader(LIMITS, Budget(LIMITS, no_time))
    _read(heads, b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000)
    with pytest.raises(ConnectionFault) as large:
        _read(heads, b"\xbe" * 9)
    assert large.value.code == frames.ENHANCE_YOUR_CALM


def test_the_memory_has_a_bound() -> None:
    heads, encoder = HeadReader(LIMITS, Budget(LIMITS, no_time)), Encoder()
    for number in range(2000):
        # Never indexed, so that the table stays as it is and every head could be kept.
        block = encoder.encode(BASE) + b"\x10\x01n" + bytes((len(str(number)),)) + str(number).encode()
        assert _metadata(heads, block) == {"n": str(number)}
    assert len(heads.known) <= 256


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1S", 1),
        (b"100m", 0.1),
        (b"2M", 120),
        (b"1H", 3600),
        (b"5u", 5e-6),
        (b"7n", 7e-9),
        (b"99999999H", 99999999 * 3600),
    ],
)
def test_timeouts(text: bytes, seconds: float) -> None:
    assert parse_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"S", b"-1S", b"1.5S", b"1", b"1s", b"123456789S", "٣S".encode(), b"1 S"])
def test_what_is_no_timeout_sets_none(text: bytes) -> None:
    assert parse_timeout(text) == math.inf


def test_binary_metadata_with_and_without_padding() -> None:
    value = bytes(range(256))
    for text in (base64.b64encode(value), base64.b64encode(value).rstrip(b"=")):
        assert request_head([*_raw(BASE), (b"x-bin", text)]).metadata == (("x-bin", value),)


@pytest.mark.parametrize("value", [b" v", b"v ", b"\t v \t"])
def test_blanks_at_the_ends_of_metadata_are_stripped(value: bytes) -> None:
    """As gRPC's protocol allows; RFC 9113 alone would have the call reset, and its client see INTERNAL."""
    assert request_head([*_raw(BASE), (b"k", value)]).metadata == (("k", "v"),)


def test_trailers_are_read_by_hpack() -> None:
    block = trailers(13, "a % of\n é " + "x" * 300, (("k-bin", b"\0\xff"), ("k", "v")))
    read: dict[Any, Any] = dict(Decoder().decode(block))  # text, though hpack declares bytes
    assert read == {
        "grpc-status": "13",
        "grpc-message": "a %25 of%0A %C3%A9 " + "x" * 300,
        "k-bin": "AP8=",
        "k": "v",
    }


def _raw(fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in fields]


def test_what_a_head_holds_is_counted_by_its_fields() -> None:
    """Fields that are nearly empty: 32 bytes each by HTTP/2's rule, and several times that in memory."""
    fields = [(name.encode(), value.encode()) for name, value in BASE]
    few, many = (request_head([*fields, *[(b"nnn", b"vvv")] * number]) for number in (0, 400))
    held = 400 * (sys.getsizeof(("", "")) + sys.getsizeof("nnn") + sys.getsizeof("vvv"))
    assert 0.8 * held < many.held_bytes - few.held_bytes < 1.5 * held
    assert many.size - few.size < held / 3


def test_heads_of_many_fields_are_not_all_kept() -> None:
    heads, encoder = HeadReader(LIMITS, Budget(LIMITS, no_time)), Encoder()
    for number in range(50):
        extra = b"\x10\x01n" + bytes((len(str(number)),)) + str(number).encode()
        _read(heads, encoder.encode(BASE) + extra + b"\x10\x03nnn\x03vvv" * 100)
    assert sum(head.held_bytes for head in heads.known.values()) <= LIMITS.max_cached_head_bytes
