"""The same frames, right and wrong, for this protocol and for the h2 package: both must agree on every one.

They are fed frame by frame. Up to the first refusal both must accept the same frames, see the same requests, give the
same acknowledgements and send the same answers as far as the windows allow; then both must refuse the same frame with
the same code. h2 makes every malformed request an error of the connection, where RFC 9113 asks for one of the stream
and allows more (5.4.1), so the kind of error is not compared. After a client's GOAWAY h2 takes no frames at all, so
none is sent. Other exceptions are listed below.
"""

import struct
from collections.abc import Callable

from hpack import Encoder
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ghostless.contract import http2_frames as frames
from tests.support.http2_judges import ANSWER, HOLD, H2Judge, OwnJudge, Step, judged_until_refused
from tests.support.http2_peer import PREFACE, raw_frame

# A frame, written when its turn comes: header blocks depend on those before.
Make = Callable[[Encoder], bytes]

# Always set: what interrupts a header block is an error in any case, and h2 judges the frame itself first.
_END_HEADERS = frames.END_HEADERS
_STREAMS = st.sampled_from([1, 1, 1, 3, 3, 5, 7])
_ANY_STREAM = st.sampled_from([0, 1, 1, 3, 5, 2])
_PATHS = st.sampled_from([HOLD, *(f"{ANSWER}{size}" for size in (0, 7, 3000, 70_000))])
_EXTRA = st.sampled_from(
    [
        [],
        [],
        [],
        [("te", "trailers")],
        [("x-bin", "AAAA")],
        [("content-length", "0")],
        [("content-length", "4")],
        [("content-length", "-4")],
        [("te", "gzip")],
        [("connection", "close")],
        [("transfer-encoding", "chunked")],
        [("Upper", "case")],
        [(":path", "/late")],
        [(":unknown", "x")],
        [("host", "other")],
        [("", "empty")],
    ]
)


def _head(path: str, extra: list[tuple[str, str]], missing: str | None) -> list[tuple[str, str]]:
    head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")]
    named = [each for each in head if each[0] != missing]
    return [*named, ("content-type", "application/grpc"), *extra]


def _headers(stream: int, fields: list[tuple[str, str]], ends: bool, cut: bool, priority: int | None) -> Make:
    def make(encoder: Encoder) -> bytes:
        block = bytes(encoder.encode(fields))
        flags = frames.END_STREAM if ends else 0
        lead = b"" if priority is None else struct.pack(">IB", priority, 15)
        flags |= 0 if priority is None else frames.PRIORITY
        if not cut:
            return raw_frame(frames.HEADERS, flags | frames.END_HEADERS, stream, lead + block)
        return raw_frame(frames.HEADERS, flags, stream, lead + block[:4]) + raw_frame(
            frames.CONTINUATION, frames.END_HEADERS, stream, block[4:]
        )

    return make


def _data(stream: int, payload: bytes, ends: bool, padding: int | None) -> Make:
    flags = (frames.END_STREAM if ends else 0) | (0 if padding is None else frames.PADDED)
    body = payload if padding is None else bytes((padding,)) + payload + bytes(padding)
    return lambda encoder: raw_frame(frames.DATA, flags, stream, body)


def _raw(kind: int, flags: int, stream: int, payload: bytes) -> Make:
    return lambda encoder: raw_frame(kind, flags, stream, payload)


_SETTING = st.tuples(
    st.sampled_from([1, 2, 3, 4, 4, 5, 6, 0xAB]), st.sampled_from([0, 1, 2, 100, 16_384, 70_000, 1 << 24, 1 << 31])
)
_REQUESTS = st.builds(
    _headers,
    _STREAMS,
    st.builds(_head, _PATHS, st.just([]) | _EXTRA, st.sampled_from([None] * 9 + [":method", ":path", ":scheme"])),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, None, None, 0, 1, 9]),
)
_FRAMES: st.SearchStrategy[Make] = st.one_of(
    _REQUESTS,
    _REQUESTS,
    st.builds(
        _headers, _STREAMS, st.sampled_from([[("x", "y")], [(":path", "/")]]), st.booleans(), st.just(False), st.none()
    ),
    st.builds(
        _data,
        _STREAMS,
        st.sampled_from([b"", bytes(4), bytes(100)]),
        st.booleans(),
        st.sampled_from([None, None, 0, 9]),
    ),
    st.builds(_data, _ANY_STREAM, st.just(bytes(4)), st.booleans(), st.none()),
    st.builds(
        _raw, st.just(frames.RST_STREAM), st.just(0), _ANY_STREAM, st.sampled_from([bytes(4), b"\0\0\0\x08", b"\0"])
    ),
    st.builds(
        _raw,
        st.just(frames.WINDOW_UPDATE),
        st.just(0),
        _ANY_STREAM,
        st.sampled_from([1, 1000, 100_000, (1 << 31) - 1, 0]).map(lambda n: struct.pack(">I", n)) | st.just(b"\0\0\1"),
    ),
    st.builds(
        _raw,
        st.just(frames.SETTINGS),
        st.just(0),
        st.sampled_from([0, 0, 0, 0, 1]),
        st.lists(_SETTING, max_size=2, unique_by=lambda each: each[0]).map(
            lambda some: b"".join(struct.pack(">HI", *each) for each in some)
        ),
    ),
    st.builds(_raw, st.just(frames.SETTINGS), st.just(0), st.just(0), st.just(b"\0\4\0\0\0")),
    st.builds(
        _raw,
        st.just(frames.PING),
        st.sampled_from([0, 0, 1]),
        _ANY_STREAM.map(lambda n: n // 5),
        st.sampled_from([b"8 bytes.", b"seven.."]),
    ),
    st.builds(
        _raw,
        st.just(frames.PRIORITY_FRAME),
        st.just(0),
        _ANY_STREAM,
        st.sampled_from([0, 1, 3]).map(lambda n: struct.pack(">IB", n, 1)),
    ),
    st.builds(_raw, st.sampled_from([0xB, 0x77]), st.integers(0, 255), _ANY_STREAM, st.binary(max_size=9)),
    st.builds(
        _raw,
        st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 9]),
        st.integers(0, 255).map(_END_HEADERS.__or__),
        _ANY_STREAM,
        st.binary(max_size=14),
    ),
    st.builds(_raw, st.just(frames.CONTINUATION), st.just(frames.END_HEADERS), _ANY_STREAM, st.just(b"\x82")),
    st.builds(_raw, st.just(frames.PUSH_PROMISE), st.just(frames.END_HEADERS), st.just(1), st.just(b"\0\0\0\2\x82")),
)


# What a client may send at any time, and what moves answers on.
_CONTROL: st.SearchStrategy[Make] = st.one_of(
    st.builds(
        _raw,
        st.just(frames.WINDOW_UPDATE),
        st.just(0),
        st.sampled_from([0, 0, 1]),
        st.sampled_from([1, 1000, 60_000]).map(lambda n: struct.pack(">I", n)),
    ),
    st.sampled_from([0, 10, 4000, 65_535, 100_000]).map(
        lambda n: _raw(frames.SETTINGS, 0, 0, struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, n))
    ),
    st.just(_raw(frames.PING, 0, 0, b"8 bytes.")),
    st.just(_raw(0x77, 0xFF, 9, b"unknown")),
)

# Kind of frame, own code, h2's code: where h2 differs, and who is right.
_KNOWN = {
    (frames.RST_STREAM, 1, None): "h2 takes RST_STREAM on an idle stream; section 6.4: a connection error",
    (frames.CONTINUATION, 1, 5): "h2 says STREAM_CLOSED to a CONTINUATION of nothing; section 6.10: PROTOCOL_ERROR",
    (frames.HEADERS, 1, None): "h2 takes a content-length without a body; section 8.1.1: malformed",
    (frames.HEADERS, 9, 1): "h2 says PROTOCOL_ERROR to a block it can't decode; section 4.3: COMPRESSION_ERROR",
    (frames.SETTINGS, 6, 1): "h2 says PROTOCOL_ERROR to an ACK with a payload; section 6.5: FRAME_SIZE_ERROR",
    (frames.WINDOW_UPDATE, None, 1): "an increment of 0 on a closed stream; section 5.1 lets it be discarded",
    (frames.HEADERS, 1, 5): "two faults in one frame: a closed stream that depends on itself",
    (frames.HEADERS, 1, 6): "two faults in one frame: too much padding and no room for the priority",
    (frames.PUSH_PROMISE, 1, 6): "two faults in one frame: a client pushes, and too short",
}


@st.composite
def _calls(draw: st.DrawFn) -> list[Make]:
    """Whole calls of a client that means well, interleaved, with control frames in between."""
    waiting: list[list[Make]] = []
    for place in range(draw(st.integers(1, 5))):
        stream, pieces = 2 * place + 1, draw(st.lists(st.sampled_from([b"", bytes(4), bytes(900)]), max_size=3))
        head = _head(draw(_PATHS), [("te", "trailers")], None)
        call = [_headers(stream, head, not pieces, draw(st.booleans()), None)]
        call += [_data(stream, piece, False, draw(st.sampled_from([None, 5]))) for piece in pieces[:-1]]
        if pieces:
            call.append(_data(stream, pieces[-1], True, None))
        waiting.append(call)
    sent: list[Make] = []
    under_way: list[list[Make]] = []
    while waiting or under_way:
        choice = draw(st.integers(0, len(under_way) + 1))
        if choice < len(under_way):
            sent.append(under_way[choice].pop(0))
            under_way = [call for call in under_way if call]
        elif choice == len(under_way) and waiting:
            under_way.append(waiting.pop(0))
            sent.append(under_way[-1].pop(0))
            under_way = [call for call in under_way if call]
        else:
            sent.append(draw(_CONTROL))
    return sent


@given(_calls(), st.lists(_CONTROL, max_size=6), st.lists(_FRAMES, max_size=4))
@settings(max_examples=500, deadline=None)
def test_calls_are_answered_the_same_and_what_follows_is_judged_the_same(
    calls: list[Make], control: list[Make], anything: list[Make]
) -> None:
    _compare([*calls, *control, *anything])


@given(st.lists(_FRAMES, min_size=1, max_size=12))
@settings(max_examples=500, deadline=None)
def test_anything_is_judged_the_same(made: list[Make]) -> None:
    _compare(made)


def _compare(made: list[Make]) -> None:
    encoder = Encoder()
    # Streams take turns differently, so the connection's window is wide.
    opening = PREFACE + raw_frame(frames.SETTINGS, 0, 0) + frames.window_update(1 << 24)
    pieces = [opening, *(make(encoder) for make in made)]
    own, other = judged_until_refused(OwnJudge(), pieces), judged_until_refused(H2Judge(), pieces)
    event(f"refused: {own[-1].refused}")
    for place, (mine, its) in enumerate(zip(own, other, strict=False)):
        shown = f"frame {place}: {pieces[place].hex()}, own {mine}, h2 {its}"
        if (pieces[place][3], _code(mine), _code(its)) in _KNOWN:
            event(_KNOWN[pieces[place][3], _code(mine), _code(its)])
            return
        assert _code(mine) == _code(its), shown
        assert mine.acknowledged == its.acknowledged, shown
        if not mine.refused:
            assert (mine.requests, sorted(mine.ended)) == (its.requests, sorted(its.ended)), shown
    assert len(own) == len(other)
    assert _sent(own) == _sent(other)


def _code(step: Step) -> int | None:
    return step.refused[1] if step.refused else None


def _sent(steps: list[Step]) -> dict[int, int]:
    """Bytes of DATA by stream; those that go out with a refusal are not compared."""
    sent: dict[int, int] = {}
    for step in steps:
        if not step.refused:
            for number, size in step.data_bytes.items():
                sent[number] = sent.get(number, 0) + size
    return sent
