"""One row per rule of RFC 9113, section 8, on the fields of a request: what makes it malformed, and what does not."""

from ghostless.contract import http2_frames as f
from tests.support.http2_judges import HOLD
from tests.support.http2_rows import (
    AUTHORITY,
    GRPC,
    HEAD,
    METHOD,
    PATH,
    SCHEME,
    Fields,
    Refused,
    Row,
    data,
    headers,
    stream,
)

OPEN = headers()
END_STREAM, END_HEADERS, PADDED = f.END_STREAM, f.END_HEADERS, f.PADDED


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
    _malformed("8.3", "a pseudo-header field in upper case", [METHOD, SCHEME, (":Path", HOLD), AUTHORITY, GRPC]),
    _malformed("8.3", "a pseudo-header field without a name", [(":", "x"), *HEAD]),
    *(
        _malformed("8.3", f"{name[0]} after other fields", [*(each for each in HEAD if each is not name), name])
        for name in (METHOD, SCHEME, AUTHORITY)
    ),
    *(
        _malformed("8.2.1", f"a name with {shown}", [*HEAD, (f"x{character}y", "z")])
        for shown, character in (("NUL", "\0"), ("LF", "\n"), ("TAB", "\t"), ("DEL", "\x7f"))
    ),
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
    _malformed("8.2.2", "te without a value", [*HEAD, ("te", "")]),
    _malformed("8.2.2", "te of trailers and more", [*HEAD, ("te", "trailers, gzip")]),
    _malformed("8.3.1", "host and :authority differ", [*HEAD, ("host", "y")]),
    _fine("8.3.1", "host and :authority agree", [*HEAD, ("host", "x")]),
    _malformed(
        "8.3.1", ":authority with a user's name", [METHOD, SCHEME, PATH, (":authority", "me@x"), GRPC], "accepted"
    ),
    _malformed("8.5", "CONNECT without :authority", [(":method", "CONNECT")]),
    _malformed("8.5", "CONNECT with :scheme", [(":method", "CONNECT"), SCHEME, AUTHORITY]),
    _malformed("8.5", "CONNECT with :path", [(":method", "CONNECT"), PATH, AUTHORITY]),
    _trailing("a pseudo-header field in trailers", PATH),
    _trailing("a response's pseudo-header field in trailers", (":status", "200")),
    _trailing("te in trailers", ("te", "gzip")),
    _trailing("an empty name in trailers", ("", "x")),
    _trailing("a value with LF in trailers", ("x", "a\nb")),
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
    _body("content-length is a list", "4, 4", bytes(4), stream()),
    _body("content-length of 5,000 digits", "4" * 5000, bytes(4), stream()),
    _body("content-length with a sign", "+4", bytes(4), stream()),
    Row(
        "8.1.1",
        "content-length and less, then trailers",
        headers(1, [*HEAD, ("content-length", "5")]) + data() + headers(1, [("x", "y")], END_HEADERS | END_STREAM),
        stream(),
        "accepted",
    ),
    Row(
        "8.1.1",
        "content-length does not count padding",
        headers(1, [*HEAD, ("content-length", "3")]) + data(1, PADDED | END_STREAM, b"\x03abc\0\0\0"),
        None,
    ),
    Row(
        "8.1.1",
        "content-length and more, before the end",
        headers(1, [*HEAD, ("content-length", "5")]) + 2 * data(),
        stream(),
    ),
    _fine(
        "8.1.1",
        "two content-lengths that agree",
        [*HEAD, ("content-length", "4"), ("content-length", "4")],
    ),
    _malformed(
        "8.1.1",
        "two content-lengths that differ",
        [*HEAD, ("content-length", "4"), ("content-length", "5")],
    ),
]
