"""Logins of the console: a token is exchanged for a cookie that scripts can't read and that other sites can't use."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from ghostless.contract.errors import ConfigError
from serving.console.responses import HttpError, Request
from serving.security.identities import IdentitiesFile, Identity

COOKIE = "ghostless_session"
CSRF_HEADER = "x-csrf-token"
LIFETIME_S = 8 * 3600.0
_MAX_SESSIONS = 1000


@dataclass(frozen=True)
class Session:
    """`csrf` must be sent in a header of every call that changes something; another site can't read it."""

    token: str
    csrf: str
    expires: float


class Sessions:
    """If `identities` is None, everybody may call everything that gRPC offers, and nobody can log in."""

    def __init__(self, identities: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._file = IdentitiesFile(identities) if identities is not None else None
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    @property
    def has_identities(self) -> bool:
        return self._file is not None

    def log_in(self, token: str) -> tuple[str, Session, Identity]:
        """The cookie's value, its session and its identity; HttpError if the token is not valid."""
        if self._file is None:
            raise HttpError(
                "FAILED_PRECONDITION", "this server has no identities; start it with --identities to be able to log in"
            )
        identity = self._identity(token)
        if identity is None:
            raise HttpError("UNAUTHENTICATED", "the token is not valid or has expired")
        session = Session(token, secrets.token_urlsafe(32), self._clock() + LIFETIME_S)
        key = secrets.token_urlsafe(32)
        with self._lock:
            now = self._clock()
            self._sessions = {each: one for each, one in self._sessions.items() if one.expires > now}
            while len(self._sessions) >= _MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[key] = session
        return key, session, identity

    def log_out(self, request: Request) -> None:
        with self._lock:
            self._sessions.pop(cookie_of(request), None)

    def find(self, request: Request) -> Session | None:
        """The session of the request's cookie, if it has not expired."""
        with self._lock:
            session = self._sessions.get(cookie_of(request))
        return session if session is not None and session.expires > self._clock() else None

    def authorization(self, request: Request) -> str:
        """The authorization that is passed on to the workers: the request's own header, or the token of its session."""
        given = request.headers.get("authorization", "")
        if given:
            return given
        session = self.find(request)
        return f"Bearer {session.token}" if session else ""

    def identity(self, request: Request) -> Identity | None:
        """The identity behind the request; None if it has no valid token, or if the server has no identities."""
        scheme, _, token = self.authorization(request).partition(" ")
        return self._identity(token.strip()) if scheme.lower() == "bearer" else None

    def check_origin(self, request: Request) -> None:
        """Raise HttpError for a call from another site's page, or with a session's cookie but not its CSRF token."""
        headers = request.headers
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise HttpError("PERMISSION_DENIED", "the request comes from a page of another site")
        origin = headers.get("origin")
        scheme = "https" if request.is_tls else "http"
        # Behind a proxy that terminates TLS, the browser's origin has https; only the host is compared.
        if origin is not None and origin.removeprefix("https://").removeprefix("http://") != headers.get("host", ""):
            raise HttpError("PERMISSION_DENIED", f"the request's origin is not {scheme}://{headers.get('host', '')}")
        session = self.find(request) if "authorization" not in headers else None
        if session is not None:
            sent = headers.get(CSRF_HEADER, "")
            if not secrets.compare_digest(sent.encode(), session.csrf.encode()):
                raise HttpError("PERMISSION_DENIED", f"the header {CSRF_HEADER} of this session is missing or wrong")

    def _identity(self, token: str) -> Identity | None:
        if self._file is None:
            return None
        self._file.refresh()
        stored = self._file.current.tokens.find(token)
        return stored.owner if stored is not None and stored.expires > self._clock() else None


def open_sessions(path: str) -> Sessions:
    try:
        return Sessions(Path(path) if path else None)
    except ConfigError as error:  # the file was readable when the server started
        raise SystemExit(str(error)) from error


def cookie_header(key: str, is_tls: bool) -> tuple[str, str]:
    """The header that sets the cookie or, with an empty key, removes it."""
    age_s = int(LIFETIME_S) if key else 0
    secure = "; Secure" if is_tls else ""
    return ("Set-Cookie", f"{COOKIE}={key}; Max-Age={age_s}; Path=/; HttpOnly; SameSite=Strict{secure}")


def cookie_of(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""
