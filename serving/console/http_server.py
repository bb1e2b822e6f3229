"""HTTP/1.1 on the Unix socket to which connections of the operations port are relayed: a thread for each connection."""

import logging
import socket
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import parse_qsl

from serving.console.responses import SECURITY_HEADERS, HttpError, Request, Response

_log = logging.getLogger(__name__)

_IDLE_S = 120.0
_MAX_TARGET = 8192
# For errors that http.server finds: an unknown method, a line that is too long, too many headers.
_CODES = {501: "METHOD_NOT_ALLOWED", 414: "TOO_LARGE", 431: "TOO_LARGE"}
Answer = Callable[[Request], Response]


class HttpServer(ThreadingMixIn, UnixStreamServer):
    """Listens as soon as it is created."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, path: str, answer: Answer, max_body_bytes: int) -> None:
        self.answer = answer
        self.max_body_bytes = max_body_bytes
        super().__init__(path, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """No traceback for a client that disconnects."""
        _log.debug("a connection failed: %s", sys.exc_info()[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    # Buffered, so that head and body of a response are sent in one segment.
    wbufsize = 1 << 16
    server: HttpServer

    def setup(self) -> None:
        super().setup()
        # The relay's first line: the scheme of the connection, and the peer's address.
        scheme, _, self._peer = self.rfile.readline(200).decode("latin-1").strip().partition(" ")
        self._is_tls = scheme == "https"

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)

    def address_string(self) -> str:
        return self._peer

    def version_string(self) -> str:
        return "ghostless"

    def handle_expect_100(self) -> bool:
        result = super().handle_expect_100()
        self.wfile.flush()  # the client sends no body before it has received this
        return result

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers a request that can't be parsed, in JSON like every error."""
        self.close_connection = True
        named = _CODES.get(code, "INVALID_ARGUMENT")
        self._send(HttpError(named, f"not a valid HTTP request: {message or code}").response())

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_GET  # noqa: N815

    def _serve(self) -> None:
        try:
            target, _, query = self.path.partition("?")
            if len(self.path) > _MAX_TARGET:
                raise HttpError("TOO_LARGE", f"the path and its query have over {_MAX_TARGET} characters")
            body = self._body()
            request = Request(
                method=self.command,
                path=target,
                query=dict(parse_qsl(query, keep_blank_values=True, errors="replace")),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=body,
                peer=self._peer,
                is_tls=self._is_tls,
            )
        except HttpError as error:
            self.close_connection = True  # the body was not read
            self._send(error.response())
            return
        self._send(self.server.answer(request))

    def _body(self) -> bytes:
        """The request's body. HttpError if its length is ambiguous: a proxy and this server must read the same body."""
        headers = self.headers
        for name in ("content-length", "host", "authorization", "transfer-encoding", "cookie", "origin"):
            if len(headers.get_all(name, [])) > 1:
                raise HttpError("INVALID_ARGUMENT", f"the header {name} is sent more than once")
        if "transfer-encoding" in headers:
            raise HttpError("LENGTH_REQUIRED", "send the body with Content-Length, not with Transfer-Encoding")
        if headers.get("content-encoding", "identity") != "identity":
            raise HttpError("UNSUPPORTED_MEDIA_TYPE", "send the body without Content-Encoding")
        text = headers.get("content-length", "0").strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise HttpError("INVALID_ARGUMENT", f"Content-Length is {text[:40]!r}, expected a number of bytes")
        length = int(text)
        if length > self.server.max_body_bytes:
            most = self.server.max_body_bytes / (1 << 20)
            raise HttpError(
                "TOO_LARGE", f"the body has {length} bytes, at most {most:g} MB are allowed (--max-message-mb)"
            )
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            raise HttpError("INVALID_ARGUMENT", f"the body ended after {len(body)} of {length} bytes")
        return body

    def _send(self, response: Response) -> None:
        if self.request_version == "HTTP/0.9":  # also set if a request could not be parsed; it needs a status line
            self.request_version = "HTTP/1.0"
        is_body_sent = getattr(self, "command", "") != "HEAD" and response.status != 304
        self.send_response(response.status)
        self.send_header("Content-Type", response.kind)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-cache" if response.is_cached else "no-store")
        for name, value in (*SECURITY_HEADERS, *response.headers):
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if is_body_sent:
            self.wfile.write(response.body)
        self.wfile.flush()

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:  # the client disconnected
            self.connection.shutdown(socket.SHUT_RDWR)
