"""HTTP calls of the operations port of a served process, kept on one connection."""

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.processes import ServeProcess


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpClient:
    """`token` is sent with every call; `context` is for TLS."""

    def __init__(self, server: ServeProcess, token: str = "", context: ssl.SSLContext | None = None) -> None:
        line = next(line for line in server.lines if line.startswith("console: "))
        place = urlsplit(line.removeprefix("console: "))
        self.host, self.port = str(place.hostname), int(place.port or 0)
        self._token = token
        self._connection: http.client.HTTPConnection
        if context is None:
            self._connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        else:
            self._connection = http.client.HTTPSConnection(self.host, self.port, timeout=30, context=context)

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, None, **headers)

    def post(self, path: str, content: Any, **headers: str) -> Answer:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.call("POST", path, body, **headers)

    def call(self, method: str, path: str, body: bytes | None, **headers: str) -> Answer:
        """Underscores in header names stand for dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token and "authorization" not in sent:
            sent["authorization"] = f"Bearer {self._token}"
        self._connection.request(method, path, body, sent)
        answer = self._connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
