"""Maps paths to handlers. Every request passes through here, so this is where the checks for all requests are made."""

import ipaddress
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes

from serving.console.responses import HttpError, Request, Response
from serving.console.sessions import Sessions

_log = logging.getLogger(__name__)

Handler = Callable[[Request, str], Response]
# One segment of a path, as the client encoded it.
_PART = r"([^/]+)"


@dataclass(frozen=True)
class Route:
    method: str
    pattern: re.Pattern[str]
    handler: Handler


class Router:
    """`checks_host`: refuse host names other than those of this machine (DNS rebinding)."""

    def __init__(self, sessions: Sessions, checks_host: bool) -> None:
        self._sessions = sessions
        self._checks_host = checks_host
        self._routes: list[Route] = []

    def add(self, method: str, path: str, handler: Handler) -> None:
        """`{}` in the path stands for one segment, which the handler finds decoded in `request.parts`."""
        pattern = re.compile(_PART.join(re.escape(each) for each in path.split("{}")))
        self._routes.append(Route(method, pattern, handler))

    def answer(self, request: Request) -> Response:
        """`request.path` is not decoded yet."""
        try:
            if self._checks_host:
                check_host(request.headers.get("host", ""))
            return self._answer(request)
        except HttpError as error:
            return error.response()
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return HttpError("INTERNAL", "the request could not be handled; see the server's log").response()

    def _answer(self, request: Request) -> Response:
        allowed: list[str] = []
        method = "GET" if request.method == "HEAD" else request.method
        for route in self._routes:
            found = route.pattern.fullmatch(request.path)
            if found is None:
                continue
            if route.method != method:
                allowed.append(route.method)
                continue
            if method != "GET":
                self._sessions.check_origin(request)
            parts = tuple(_decoded(part) for part in found.groups())
            return route.handler(replace(request, parts=parts), self._sessions.authorization(request))
        if allowed:
            methods = ", ".join(sorted(set(allowed)))
            message = f"{request.method} is not allowed for this path; use {methods}"
            raise HttpError("METHOD_NOT_ALLOWED", message, (("Allow", methods),))
        raise HttpError("NOT_FOUND", f"nothing is at {request.path[:200]}; /openapi.json lists what there is")


def check_host(host: str) -> None:
    """HttpError unless it is an IP address or localhost."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    name = name.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise HttpError(
            "MISDIRECTED",
            f"this port serves localhost, the request asks for the host {host[:100]!r}; behind a proxy, have it send "
            "`Host: localhost`",
        ) from None


def _decoded(part: str) -> str:
    try:
        text = unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise HttpError("INVALID_ARGUMENT", "the path is not UTF-8") from None
    if "\0" in text:
        raise HttpError("INVALID_ARGUMENT", "the path has a NUL byte")
    return text
