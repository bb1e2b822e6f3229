"""FrameReader against frames written by hyperframe: any split, and anything else."""

import itertools
from contextlib import suppress

import pytest
from hyperframe.frame import ContinuationFrame, DataFrame, Frame, HeadersFrame, PingFrame, SettingsFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from ghostless.contract import http2_frames as frames
from serving.http2.budget import Budget, no_time
from serving.http2.errors import ConnectionFault
from serving.http2.frame_reader import FrameReader
from serving.http2.headers import HeadReader, RequestHead
from serving.http2.limits import Limits
from tests.support.http2_peer import PREFACE, raw_frame

LIMITS = Limits(1 << 20, 100)
Read = list[tuple[int, int, int, bytes, int]]


def _read(*pieces: bytes) -> Read:
    reader = FrameReader(LIMITS, Budget(LIMITS, no_time))
    whole: Read = []
    waiting = list(pieces)
    while waiting or reader.has_more:
        piece = b"" if reader.has_more else waiting.pop(0)
        # In a buffer that is used again at once, as the poller's is.
        buffer = bytearray(piece)
        whole += [
            (kind, flags, n, bytes(payload), size) for kind, flags, n, payload, size in reader.read(memoryview(buffer))
        ]
        buffer[:] = bytes(len(buffer))
    return whole


def _data(payload: bytes, padding: int | None) -> bytes:
    flags = [] if padding is None else ["PADDED"]
    return bytes(DataFrame(3, payload, pad_length=padding or 0, flags=flags).serialize())


def _block(block: bytes, cuts: list[int], padded: bool, priority: bool) -> bytes:
    edges = [0, *sorted(cut for cut in cuts if cut < len(block)), len(block)]
    pieces = [block[a:b] for a, b in itertools.pairwise(edges)]
    flags = [*(["PADDED"] if padded else []), *(["PRIORITY"] if priority else [])]
    first = HeadersFrame(5, pieces[0], pad_length=7 if padded else 0, flags=flags)
    rest: list[Frame] = [ContinuationFrame(5, piece) for piece in pieces[1:]]
    [first, *rest][-1].flags.add("END_HEADERS")
    return b"".join(frame.serialize() for frame in (first, *rest))


_VALID = st.lists(
    st.one_of(
        st.builds(_data, st.binary(max_size=40), st.none() | st.integers(0, 30)),
        st.builds(
            _block, st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=3), st.booleans(), st.booleans()
        ),
        st.just(PingFrame(0, b"8 bytes.").serialize()),
        st.just(SettingsFrame(0, {3: 4}).serialize()),
        st.builds(
            raw_frame, st.integers(10, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=9)
        ),
    ),
    max_size=6,
).map(lambda parts: PREFACE + b"".join(parts))


@given(_VALID, st.lists(st.integers(0, 400), max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_split_gives_the_same_frames(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    whole = _read(stream)
    assert _read(*pieces) == whole
    assert _read(*(stream[i : i + 1] for i in range(len(stream)))) == whole


@given(st.binary(max_size=400), st.booleans())
@settings(max_examples=300, deadline=None)
def test_garbage_is_a_connection_fault_or_nothing(garbage: bytes, greets: bool) -> None:
    with suppress(ConnectionFault):
        for kind, _, _, payload, _ in _read(PREFACE + garbage if greets else garbage):
            assert bytes(payload) in garbage
            if kind == frames.HEADERS:
                assert isinstance(HeadReader(LIMITS, Budget(LIMITS, no_time)).read(payload), RequestHead)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_a_garbled_header_block_is_a_connection_fault_or_a_head(blocks: list[bytes]) -> None:
    heads = HeadReader(LIMITS, Budget(LIMITS, no_time))
    with suppress(ConnectionFault):
        for block in blocks:
            assert isinstance(heads.read(block), RequestHead)


def test_padding_and_priority_are_taken_off_and_padding_counts_against_the_window() -> None:
    framed = _data(b"abc", 10) + _block(b"block", [2], padded=True, priority=True)
    data, head = _read(PREFACE + framed)
    assert data[2:] == (3, b"abc", 3 + 1 + 10)
    assert (head[0], head[2], head[3]) == (frames.HEADERS, 5, b"block")


@pytest.mark.parametrize(
    "wrong",
    [
        raw_frame(frames.DATA, frames.PADDED, 1, bytes((4,)) + b"abc"),
        raw_frame(frames.DATA, frames.PADDED, 1),
        raw_frame(frames.HEADERS, frames.PADDED | frames.END_HEADERS, 1, bytes((1,))),
        raw_frame(frames.HEADERS, frames.PRIORITY | frames.END_HEADERS, 1, b"1234"),
        raw_frame(frames.CONTINUATION, frames.END_HEADERS, 1, b""),
        raw_frame(frames.HEADERS, 0, 1, b"") + raw_frame(frames.CONTINUATION, frames.END_HEADERS, 3, b""),
        raw_frame(frames.HEADERS, 0, 1, b"") + raw_frame(frames.PING, 0, 0, bytes(8)),
        raw_frame(frames.HEADERS, 0, 1, b"") + raw_frame(200, 0, 0),
        b"\xff\xff\xff" + bytes(6),
    ],
    ids=lambda wrong: wrong[:12].hex(),
)
def test_what_can_not_be_read_is_a_connection_fault(wrong: bytes) -> None:
    with pytest.raises(ConnectionFault):
        _read(PREFACE, wrong)


@pytest.mark.parametrize("cuts", [[], [10], [LIMITS.max_block_bytes - 5]])
def test_a_header_block_has_a_bound_however_it_is_cut(cuts: list[int]) -> None:
    """Before anything is decoded: a megabyte of Huffman codes takes a fifth of a second, and all clients wait."""
    assert _read(PREFACE, _block(bytes(LIMITS.max_block_bytes), cuts, False, False))[0][3] == bytes(
        LIMITS.max_block_bytes
    )
    with pytest.raises(ConnectionFault) as large:
        _read(PREFACE, _block(bytes(LIMITS.max_block_bytes + 1), cuts, False, False))
    assert large.value.code == frames.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "other", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSN"]
)
def test_another_protocol_is_told_from_its_first_bytes_on(other: bytes) -> None:
    with pytest.raises(ConnectionFault):
        _read(*(other[i : i + 1] for i in range(len(other))))
