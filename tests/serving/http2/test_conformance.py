"""Every row of the table leads to its error, whole and byte by byte; the h2 package gives a second opinion."""

import pytest

from tests.serving.http2.conformance_rows import FRAMES, STATES
from tests.serving.http2.field_rows import FIELDS
from tests.serving.http2.hpack_rows import HPACK, IGNORED
from tests.support.http2_judges import H2Judge, OwnJudge
from tests.support.http2_peer import PREFACE, raw_frame
from tests.support.http2_rows import OPENING, PING, Row, connection

ROWS = [*FRAMES, *STATES, *FIELDS, *HPACK, *IGNORED]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_leads_to_its_error(row: Row) -> None:
    judge = OwnJudge()
    judge.feed(OPENING + row.before)
    assert judge.feed(row.wire).refused == row.refused


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_in_single_bytes_leads_to_the_same(row: Row) -> None:
    judge = OwnJudge()
    steps = [judge.feed(bytes((byte,))) for byte in OPENING + row.before + row.wire]
    assert next((step.refused for step in steps if step.refused), None) == row.refused


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_after_a_stream_error_others_are_served_and_after_a_connection_error_nothing_is(row: Row) -> None:
    judge = OwnJudge()
    judge.feed(OPENING + row.before)
    judge.feed(row.wire)
    ended = row.refused is not None and row.refused[0] == "connection"
    assert judge.feed(PING).acknowledged == ([] if ended else [bytes(8)])


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_second_opinion(row: Row) -> None:
    """Kinds of errors may differ: every error of a stream may be made one of the connection (RFC 9113, 5.4.1)."""
    judge = H2Judge()
    judge.feed(OPENING + row.before)
    refused = judge.feed(row.wire).refused
    codes = (row.refused[1] if row.refused else None, refused[1] if refused else None)
    names = {None: "accepted", 1: "PROTOCOL_ERROR", 5: "STREAM_CLOSED", 6: "FRAME_SIZE_ERROR"}
    assert row.h2 == ("" if codes[0] == codes[1] else names[codes[1]])


@pytest.mark.parametrize(
    "wire",
    [
        b"whatever this is",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        PREFACE + PING,
        PREFACE + raw_frame(4, 1, 0),
        PREFACE + raw_frame(0x77, 0, 0) + PING,
    ],
)
def test_a_connection_begins_with_the_preface_and_settings(wire: bytes) -> None:
    """RFC 9113, section 3.4."""
    assert OwnJudge().feed(wire).refused == connection()


def test_each_rule_has_one_row() -> None:
    names = [str(row) for row in ROWS]
    assert len({*names}) == len(names) >= 200
