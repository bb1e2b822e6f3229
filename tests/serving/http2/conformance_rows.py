"""One row per rule of RFC 9113 that a client can break: its bytes, and the error that they must lead to."""

from ghostless.contract import http2_frames as f
from tests.support.http2_judges import ANSWER, HOLD
from tests.support.http2_peer import raw_frame
from tests.support.http2_rows import (
    AUTHORITY,
    CLOSED,
    COMPRESSION,
    FLOW,
    GRPC,
    HEAD,
    METHOD,
    PATH,
    PING,
    REFUSED,
    SCHEME,
    SIZE,
    Fields,
    Refused,
    Row,
    connection,
    data,
    headers,
    priority,
    request,
    reset,
    settings,
    stream,
    window,
)

END_STREAM, END_HEADERS, PADDED, PRIORITY, ACK = f.END_STREAM, f.END_HEADERS, f.PADDED, f.PRIORITY, f.ACK

OPEN, WHOLE, DONE = headers(), request(), request(1, f"{ANSWER}7")
TRAILERS = headers(1, [("x", "y")], END_HEADERS | END_STREAM)
MOST = f.LARGEST_WINDOW

FRAMES = [
    Row("4.1", "an unknown kind of frame is ignored", raw_frame(0x77, 0xFF, 9, b"?"), None),
    Row("4.2", "a frame over the limit", b"\x10\x00\x01\x00\x00\0\0\0\1", connection(SIZE), "accepted"),
    Row(
        "4.3.1",
        "a table larger than allowed",
        raw_frame(f.HEADERS, END_HEADERS, 1, b"\x3f\xe2\x1f"),
        connection(COMPRESSION),
        "PROTOCOL_ERROR",
    ),
    Row("4.3", "PING inside a block", headers(flags=0) + PING, connection()),
    Row("4.3", "an unknown frame inside a block", headers(flags=0) + raw_frame(0x77, 0, 0), connection()),
    Row("4.3", "DATA inside a block", headers(flags=0) + data(), connection()),
    Row(
        "6.10",
        "CONTINUATION of another stream",
        headers(flags=0) + raw_frame(f.CONTINUATION, END_HEADERS, 3),
        connection(),
    ),
    Row("6.10", "CONTINUATION of nothing", raw_frame(f.CONTINUATION, END_HEADERS, 1), connection()),
    Row(
        "6.10",
        "CONTINUATION after the end of its block",
        OPEN + raw_frame(f.CONTINUATION, END_HEADERS, 1),
        connection(),
    ),
    Row("6.10", "CONTINUATION on stream 0", raw_frame(f.CONTINUATION, END_HEADERS, 0), connection()),
    Row("6.1", "DATA on stream 0", data(0), connection()),
    Row("6.1", "DATA whose padding is all of it", OPEN + data(1, PADDED, b"\x04abc"), connection()),
    Row("6.1", "DATA without the length of its padding", OPEN + data(1, PADDED, b""), connection(SIZE)),
    Row("6.1", "padded DATA", OPEN + data(1, PADDED | END_STREAM, b"\x03abc\0\0\0"), None),
    Row("6.2", "HEADERS on stream 0", headers(0), connection()),
    Row(
        "6.2",
        "HEADERS whose padding is all of it",
        raw_frame(f.HEADERS, END_HEADERS | PADDED, 1, b"\x09\x82"),
        connection(),
    ),
    Row(
        "6.2",
        "HEADERS too short for its priority",
        raw_frame(f.HEADERS, END_HEADERS | PRIORITY, 1, b"1234"),
        connection(SIZE),
    ),
    Row(
        "6.2",
        "padded HEADERS with a priority",
        headers(1, HEAD, END_HEADERS | PADDED | PRIORITY, b"\x02" + priority(0), b"\0\0"),
        None,
    ),
    Row("6.3", "PRIORITY on stream 0", raw_frame(f.PRIORITY_FRAME, 0, 0, priority(1)), connection()),
    Row("6.3", "PRIORITY of 4 bytes", OPEN + raw_frame(f.PRIORITY_FRAME, 0, 1, bytes(4)), connection(SIZE)),
    Row("6.3", "PRIORITY of an idle stream", raw_frame(f.PRIORITY_FRAME, 0, 9, priority(3)), None),
    Row("6.3", "PRIORITY of a closed stream", raw_frame(f.PRIORITY_FRAME, 0, 1, priority(3)), None, before=DONE),
    Row(
        "7540, 5.3.1",
        "PRIORITY of a stream on itself",
        OPEN + raw_frame(f.PRIORITY_FRAME, 0, 1, priority(1)),
        connection(),
    ),
    Row(
        "7540, 5.3.1",
        "HEADERS of a stream that depends on itself",
        headers(1, HEAD, END_HEADERS | PRIORITY, priority(1)),
        connection(),
    ),
    Row("6.4", "RST_STREAM on stream 0", reset(0), connection()),
    Row("6.4", "RST_STREAM of 3 bytes", OPEN + raw_frame(f.RST_STREAM, 0, 1, bytes(3)), connection(SIZE)),
    Row("6.4", "RST_STREAM of an idle stream", reset(1), connection()),
    Row("6.5", "SETTINGS on a stream", raw_frame(f.SETTINGS, 0, 1), connection()),
    Row("6.5", "SETTINGS of 5 bytes", raw_frame(f.SETTINGS, 0, 0, bytes(5)), connection(SIZE)),
    Row(
        "6.5",
        "an acknowledgement with a payload",
        raw_frame(f.SETTINGS, ACK, 0, bytes(6)),
        connection(SIZE),
        "PROTOCOL_ERROR",
    ),
    Row("6.5.2", "ENABLE_PUSH of 2", settings((f.ENABLE_PUSH, 2)), connection()),
    Row("6.5.2", "ENABLE_PUSH of 0 and of 1", settings((f.ENABLE_PUSH, 0)) + settings((f.ENABLE_PUSH, 1)), None),
    Row(
        "6.5.2",
        "a wrong value before a right one",
        settings((f.ENABLE_PUSH, 2), (f.ENABLE_PUSH, 0)),
        connection(),
        "accepted",
    ),
    Row("6.5.2", "INITIAL_WINDOW_SIZE of 2^31", settings((f.INITIAL_WINDOW_SIZE, MOST + 1)), connection(FLOW)),
    Row("6.5.2", "INITIAL_WINDOW_SIZE of 2^31 - 1", settings((f.INITIAL_WINDOW_SIZE, MOST)), None),
    Row("6.5.2", "MAX_FRAME_SIZE of 2^14 - 1", settings((f.MAX_FRAME_SIZE, (1 << 14) - 1)), connection()),
    Row("6.5.2", "MAX_FRAME_SIZE of 2^24", settings((f.MAX_FRAME_SIZE, 1 << 24)), connection()),
    Row("6.5.2", "a setting nobody knows", settings((0xABCD, 7)), None),
    Row(
        "6.6",
        "PUSH_PROMISE of a client",
        OPEN + raw_frame(f.PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2\x82"),
        connection(),
    ),
    Row("6.7", "PING on a stream", raw_frame(f.PING, 0, 1, bytes(8)), connection()),
    Row("6.7", "PING of 7 bytes", raw_frame(f.PING, 0, 0, bytes(7)), connection(SIZE)),
    Row("6.7", "an answer to no PING", raw_frame(f.PING, ACK, 0, bytes(8)), None),
    Row("6.8", "GOAWAY on a stream", raw_frame(f.GOAWAY, 0, 1, bytes(8)), connection()),
    Row("6.8", "GOAWAY of 7 bytes", raw_frame(f.GOAWAY, 0, 0, bytes(7)), connection(SIZE)),
    Row(
        "6.8",
        "GOAWAY, then the rest of a call",
        OPEN + raw_frame(f.GOAWAY, 0, 0, bytes(8)) + data(1, END_STREAM),
        None,
        "PROTOCOL_ERROR",
    ),
    Row("6.9", "WINDOW_UPDATE of 3 bytes", raw_frame(f.WINDOW_UPDATE, 0, 0, bytes(3)), connection(SIZE)),
    Row("6.9", "WINDOW_UPDATE of the connection by 0", window(0, 0), connection()),
    Row("6.9", "WINDOW_UPDATE of a stream by 0", OPEN + window(1, 0), stream()),
    Row("6.9.1", "a connection's window over 2^31 - 1", window(0, MOST), connection(FLOW)),
    Row("6.9.1", "a stream's window over 2^31 - 1", OPEN + window(1, MOST), stream(FLOW)),
    Row(
        "6.9.2",
        "an initial window that makes a stream's too large",
        OPEN + window(1, 1) + settings((f.INITIAL_WINDOW_SIZE, MOST)),
        connection(FLOW),
    ),
]

STATES = [
    Row("5.1", "DATA on an idle stream", data(), connection()),
    Row("5.1", "WINDOW_UPDATE on an idle stream", window(1, 1), connection()),
    Row("5.1", "DATA after the request's end", WHOLE + data(), stream(CLOSED)),
    Row("5.1", "HEADERS after the request's end", WHOLE + TRAILERS, stream(CLOSED)),
    Row("5.1", "WINDOW_UPDATE after the request's end", WHOLE + window(1, 1), None),
    Row("5.1", "RST_STREAM after the request's end", WHOLE + reset(1), None),
    Row("5.1", "DATA on a closed stream", data(), connection(CLOSED), before=DONE),
    Row("5.1", "HEADERS on a closed stream", headers(), connection(CLOSED), before=DONE),
    Row("5.1", "WINDOW_UPDATE on a closed stream", window(1, 1), None, before=DONE),
    Row("5.1", "RST_STREAM on a closed stream", reset(1), None, before=DONE),
    Row("5.1", "DATA after the client's RST_STREAM", OPEN + reset(1) + data(), connection(CLOSED)),
    Row("5.1", "HEADERS after the client's RST_STREAM", OPEN + reset(1) + TRAILERS, connection(CLOSED)),
    Row(
        "5.1",
        "frames on their way when the server resets",
        headers(1, [*HEAD, ("te", "x")]) + data() + TRAILERS + reset(1),
        stream(),
    ),
    Row("5.1.1", "an even stream", headers(2), connection()),
    Row("5.1.1", "a lower stream than the last", headers(5) + headers(3), connection()),
    Row("5.1.1", "DATA on a stream that was skipped", headers(5) + data(3), connection(CLOSED)),
    Row("5.1.1", "a stream after a gap", headers(1) + headers(9), None),
    Row(
        "5.1.2",
        "more streams than allowed",
        b"".join(headers(number) for number in range(1, 203, 2)),
        stream(REFUSED),
        "PROTOCOL_ERROR",
    ),
    Row("8.1", "trailers that don't end the request", OPEN + headers(1, [("x", "y")]), stream()),
    Row("8.1", "trailers", OPEN + data() + TRAILERS, None),
]


def _malformed(section: str, rule: str, fields: Fields, h2: str = "") -> Row:
    return Row(section, rule, headers(1, fields), stream(), h2)


def _fine(section: str, rule: str, fields: Fields, h2: str = "") -> Row:
    return Row(section, rule, headers(1, fields), None, h2)


def _trailing(rule: str, field: tuple[str, str]) -> Row:
    return Row("8.1", rule, OPEN + headers(1, [field], END_HEADERS | END_STREAM), stream())


def _body(rule: str, length: str, body: bytes | None, refused: Refused, h2: str = "") -> Row:
    fields = [*HEAD, ("content-length", length)]
    if body is None:
        return Row("8.1.1", rule, headers(1, fields, END_HEADERS | END_STREAM), refused, h2)
    return Row("8.1.1", rule, headers(1, fields) + data(1, END_STREAM, body), refused, h2)


FIELDS = [
    _fine("8.3.1", "a request as gRPC sends it", [*HEAD, ("te", "trailers"), ("user-agent", "x")]),
    *(
        _malformed("8.3.1", f"{name[0]} is missing", [each for each in HEAD if each is not name])
        for name in (METHOD, SCHEME, PATH)
    ),
    *(_malformed("8.3.1", f"{name[0]} comes twice", [name, *HEAD]) for name in (METHOD, SCHEME, PATH, AUTHORITY)),
    *(
        _malformed("8.3.1", f"{name} is empty", [(name, "") if each[0] == name else each for each in HEAD], h2)
        for name, h2 in ((":path", ""), (":scheme", "accepted"), (":method", "accepted"))
    ),
    _malformed("8.3", "an unknown pseudo-header field", [(":protocol", "x"), *HEAD]),
    _malformed("8.3", "a response's pseudo-header field", [(":status", "200"), *HEAD]),
    _malformed("8.3", "a pseudo-header field after others", [METHOD, SCHEME, AUTHORITY, GRPC, PATH]),
    _malformed("8.2.1", "a name in upper case", [*HEAD, ("X-Upper", "y")]),
    _malformed("8.2.1", "a name with a blank", [*HEAD, ("x y", "z")]),
    _malformed("8.2.1", "a name with a colon", [*HEAD, ("x:y", "z")]),
    _malformed("8.2.1", "a name with a byte over 0x7f", [*HEAD, ("x\u00e9", "z")]),
    _malformed("8.2.1", "an empty name", [*HEAD, ("", "z")]),
    _malformed("8.2.1", "a value with LF", [*HEAD, ("x", "a\nb")]),
    _malformed("8.2.1", "a value with CR", [*HEAD, ("x", "a\rb")]),
    _malformed("8.2.1", "a value with NUL", [*HEAD, ("x", "a\0b")]),
    _malformed(
        "8.2.1", "a pseudo-header field that ends with a blank", [METHOD, SCHEME, (":path", HOLD + " "), AUTHORITY]
    ),
    # Malformed by the letter; gRPC's protocol lets a server strip them, and its clients send them.
    _fine("8.2.1", "a value that begins with a blank", [*HEAD, ("x", " a")], "PROTOCOL_ERROR"),
    _fine("8.2.1", "a value that ends with a tab", [*HEAD, ("x", "a\t")], "PROTOCOL_ERROR"),
    _fine("8.2.1", "a value with a blank inside, and an empty one", [*HEAD, ("x", "a b"), ("y", "")]),
    *(
        _malformed("8.2.2", f"{name} of HTTP/1.1", [*HEAD, (name, "x")])
        for name in ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
    ),
    _malformed("8.2.2", "te other than trailers", [*HEAD, ("te", "gzip")]),
    _malformed("8.2.2", "te of trailers and more", [*HEAD, ("te", "trailers, gzip")]),
    _malformed("8.3.1", "host and :authority differ", [*HEAD, ("host", "y")]),
    _fine("8.3.1", "host and :authority agree", [*HEAD, ("host", "x")]),
    _malformed("8.5", "CONNECT with :path", [(":method", "CONNECT"), PATH, AUTHORITY]),
    _trailing("a pseudo-header field in trailers", PATH),
    _trailing("a name in upper case in trailers", ("X", "y")),
    _trailing("connection in trailers", ("connection", "close")),
    _body("content-length is the body's", "4", bytes(4), None),
    _body("content-length and less", "5", bytes(4), stream()),
    _body("content-length and more", "3", bytes(4), stream()),
    _body("content-length and no body", "4", None, stream(), "accepted"),
    _body("content-length of 0 and no body", "0", None, None),
    _body("content-length is no number", "four", bytes(4), stream()),
    _body("content-length is negative", "-4", bytes(4), stream()),
    _body("content-length without digits", "", bytes(4), stream()),
    _malformed(
        "8.1.1",
        "two content-lengths that differ",
        [*HEAD, ("content-length", "4"), ("content-length", "5")],
    ),
]
