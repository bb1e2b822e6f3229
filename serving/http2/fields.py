"""Checks header fields: which ones make a request malformed, a stream error (RFC 9113, sections 8.1 to 8.3)."""

import re
from collections.abc import Sequence

Field = tuple[bytes, bytes]

# Section 8.2.1. All names, and all values, are joined and searched in one pass.
_BAD_IN_NAME = re.compile(rb"[\x00-\x20A-Z\x7f-\xff]")
_BAD_IN_VALUE = re.compile(rb"[\x00\r]")
# Also malformed by the same section, but gRPC's clients send such metadata, and its protocol lets a server strip it.
_BLANK_AT_AN_END = re.compile(rb"\n[ \t]|[ \t]\n")
_BLANKS = b" \t"
# Section 8.2.2.
_CONNECTION_SPECIFIC = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
# Section 8.3.1.
_METHOD, _SCHEME, _PATH, _AUTHORITY = b":method", b":scheme", b":path", b":authority"
# More digits than any length has; Python refuses to parse thousands of digits.
_MAX_LENGTH_DIGITS = 18
_PSEUDO = frozenset((_METHOD, _SCHEME, _PATH, _AUTHORITY))


class MalformedError(Exception):
    """The fields of a request or its trailers are invalid; the message says why."""


def request_fields(fields: Sequence[Field]) -> tuple[dict[bytes, bytes], Sequence[Field]]:
    """The pseudo-header fields by name, and the others."""
    fields = _checked(fields)
    pseudo: dict[bytes, bytes] = {}
    for name, value in fields:
        if not name.startswith(b":"):
            break
        if name not in _PSEUDO:
            raise MalformedError(f"unknown pseudo-header field {_shown(name)}")
        if name in pseudo:
            raise MalformedError(f"{_shown(name)} appears twice")
        if value.strip(_BLANKS) != value:
            raise MalformedError(f"the value of {_shown(name)} begins or ends with whitespace")
        pseudo[name] = value
    others = fields[len(pseudo) :]
    _check_pseudo(pseudo)
    _check_others(others, pseudo.get(_AUTHORITY))
    return pseudo, others


def check_trailers(fields: Sequence[Field]) -> None:
    _check_others(_checked(fields), None)


def content_length(values: Sequence[bytes]) -> int | None:
    """The content length if all `values` of the field agree; None if there are none (section 8.1.1)."""
    if not values:
        return None
    if len({*values}) > 1 or not values[0].isdigit() or len(values[0]) > _MAX_LENGTH_DIGITS:
        raise MalformedError("content-length is not a single number")
    return int(values[0])


def _checked(fields: Sequence[Field]) -> Sequence[Field]:
    """The fields without blanks at the ends of values. Raises MalformedError if a character is not allowed."""
    names = [name for name, _ in fields]
    if b"" in names:
        raise MalformedError("a field has no name")
    bad = _BAD_IN_NAME.search(b",".join(names))
    if bad:
        raise MalformedError(f"a field name contains {_shown(bad[0])}")
    values = b"".join(b"\n%b\n" % value for _, value in fields)
    if _BAD_IN_VALUE.search(values) or values.count(b"\n") != 2 * len(fields):
        raise MalformedError("a field value contains CR, LF or NUL")
    if not _BLANK_AT_AN_END.search(values):
        return fields
    return [(name, value if name.startswith(b":") else value.strip(_BLANKS)) for name, value in fields]


def _check_pseudo(pseudo: dict[bytes, bytes]) -> None:
    if b"@" in pseudo.get(_AUTHORITY, b""):
        raise MalformedError(":authority must not name a user")
    method = pseudo.get(_METHOD)
    if not method:
        raise MalformedError(":method is missing")
    if method == b"CONNECT":
        # Section 8.5.
        if _SCHEME in pseudo or _PATH in pseudo or _AUTHORITY not in pseudo:
            raise MalformedError("CONNECT must have :authority and neither :scheme nor :path")
    elif not pseudo.get(_SCHEME) or not pseudo.get(_PATH):
        raise MalformedError(":scheme or :path is missing or empty")


def _check_others(fields: Sequence[Field], authority: bytes | None) -> None:
    for name, value in fields:
        if b":" in name:
            raise MalformedError(f"pseudo-header field {_shown(name)} after other fields, or a name with a colon")
        if name in _CONNECTION_SPECIFIC:
            raise MalformedError(f"{_shown(name)} is only allowed in HTTP/1.1")
        if name == b"te" and value != b"trailers":
            raise MalformedError(f"te must be trailers, got {_shown(value)}")
        if name == b"host" and authority is not None and value != authority:
            raise MalformedError("host and :authority differ")


def _shown(text: bytes) -> str:
    return repr(text[:64].decode("latin-1"))
