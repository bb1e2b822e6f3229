"""Who may call what: the identities file, parsed, checked and read again when it changes.

[ranker]
calls = ["predict", "outcomes", "read"]
models = ["demo"]
rows_per_s = 200000
concurrent_rows = 20000
certificates = ["URI:spiffe://example.org/ranker"]

[[ranker.tokens]]
id = "3f9a1c20"
sha256 = "..."
expires = 2027-06-30T00:00:00Z
"""

import logging
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Gt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ghostless.contract.errors import ConfigError
from ghostless.contract.secret_files import read_secret, signature
from serving.security.tokens import StoredToken, TokenTable

_log = logging.getLogger(__name__)

CallKind = Literal["predict", "outcomes", "read", "admin"]
CALL_KINDS: tuple[CallKind, ...] = ("predict", "outcomes", "read", "admin")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SAN = re.compile(r"(URI|DNS|IP|EMAIL):\S+")


@dataclass(frozen=True, eq=False)
class Identity:
    """Compared by identity: one that was read again is another one. `models` may hold patterns such as ranker-*."""

    name: str
    calls: frozenset[str]
    models: tuple[str, ...]
    rows_per_s: float = math.inf
    concurrent_rows: float = math.inf

    @cached_property
    def has_rate(self) -> bool:
        return self.rows_per_s != math.inf

    @cached_property
    def is_limited(self) -> bool:
        return self.has_rate or self.concurrent_rows != math.inf

    @cached_property
    def uses_every_model(self) -> bool:
        return "*" in self.models

    def may_use(self, model: str) -> bool:
        return self.uses_every_model or any(fnmatchcase(model, pattern) for pattern in self.models)


@dataclass(frozen=True, eq=False)
class Identities:
    by_name: Mapping[str, Identity]
    tokens: TokenTable[Identity]
    # By subject alternative name, as PeerCertificate has them.
    by_certificate: Mapping[str, Identity]


class _Token(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern="^[0-9a-f]{8}$")]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    expires: datetime | date | None = None


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    calls: list[CallKind]
    models: list[str] = ["*"]
    rows_per_s: Annotated[float, Gt(0)] = math.inf
    concurrent_rows: Annotated[float, Gt(0)] = math.inf
    certificates: list[str] = []
    tokens: list[_Token] = []


class IdentitiesFile:
    """ConfigError if it can't be used at first; later the last good content stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = signature([path])
        self.current = read_identities(path)

    def refresh(self) -> bool | None:
        """Read it if it changed. Whether that succeeded; None: nothing to do."""
        found = signature([self._path])
        if found == self._seen:
            return None
        self._seen = found
        try:
            self.current = read_identities(self._path)
        except ConfigError as error:
            _log.error("the changed identities are not used: %s", error)
            return False
        _log.info("identities reloaded: %s", ", ".join(sorted(self.current.by_name)) or "none")
        return True


def read_identities(path: Path) -> Identities:
    text = read_secret(path, "the identities file").decode("utf-8", "replace")
    try:
        return parse_identities(text)
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise ConfigError(f"identities file {path}: {error}") from error


def parse_identities(text: str) -> Identities:
    """ValueError says what is wrong."""
    by_name: dict[str, Identity] = {}
    tokens: dict[str, StoredToken[Identity]] = {}
    by_certificate: dict[str, Identity] = {}
    for name, content in tomllib.loads(text).items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"identity {name!r}: a name has letters, digits, dots, dashes and underscores, 63 at most")
        entry = _entry(name, content)
        identity = Identity(name, frozenset(entry.calls), tuple(entry.models), entry.rows_per_s, entry.concurrent_rows)
        by_name[name] = identity
        for token in entry.tokens:
            if token.id in tokens:
                raise ValueError(f"token id {token.id} is used twice")
            tokens[token.id] = StoredToken(token.id, bytes.fromhex(token.sha256), _seconds(token.expires), identity)
        for san in entry.certificates:
            if not _SAN.fullmatch(san):
                raise ValueError(f"identity {name!r}: certificate {san!r} is not URI:..., DNS:..., IP:... or EMAIL:...")
            if san in by_certificate:
                raise ValueError(f"certificate {san!r} belongs to {by_certificate[san].name!r} and {name!r}")
            by_certificate[san] = identity
    return Identities(by_name, TokenTable(tokens.values()), by_certificate)


def _entry(name: str, content: object) -> _Entry:
    try:
        return _Entry.model_validate(content)
    except ValidationError as wrong:
        found = [f"{'.'.join(map(str, error['loc'])) or 'it'}: {error['msg']}" for error in wrong.errors()]
        raise ValueError(f"identity {name!r}: {'; '.join(found)}") from None


def _seconds(expires: datetime | date | None) -> float:
    """A time without a zone is UTC; a date ends when it begins."""
    if expires is None:
        return math.inf
    if not isinstance(expires, datetime):
        expires = datetime(expires.year, expires.month, expires.day)
    return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).timestamp()
