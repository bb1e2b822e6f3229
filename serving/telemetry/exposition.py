"""The operations port. GET /metrics for one process or many: the values are in memory shared by the processes, and
merged at each scrape. Connections for other paths are relayed to the console's process (serving/console).

It runs in the process that the user started: with --workers N this is the supervisor, whose workers come and go. The
counts of a worker that has ended are added once.
"""

import io
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from ghostless.contract.errors import ConfigError
from serving.heartbeat import Liveness
from serving.telemetry.collector import MergedValues, as_json
from serving.telemetry.help_texts import NAMESPACE
from serving.telemetry.tls_stream import TlsStream

if TYPE_CHECKING:
    from serving.console.relay import Relay
    from serving.security.tls_files import TlsFiles

_log = logging.getLogger(__name__)

METRICS, HEALTHY, READY = "/metrics", "/-/healthy", "/-/ready"
OPERATIONS = (METRICS, HEALTHY, READY, "/livez", "/readyz")
_TEXT = ("Content-Type", "text/plain; charset=utf-8")
# After this time, a client that sends nothing is disconnected and its thread is free again.
_PATIENCE_S = 10.0
_MAX_LINE = 65537
# Not paths of the port, but for the console: all values, and where gRPC clients connect.
VALUES = "values"
ADDRESS = "address"


class Exposition:
    def __init__(
        self,
        host: str,
        port: int,
        directory: Path,
        liveness: Liveness | None = None,
        tls: "TlsFiles | None" = None,
        relay: "Relay | None" = None,
    ) -> None:
        """Starts listening immediately. `directory` contains the values of the processes. Without `liveness`, a server
        that answers is alive. With `tls` None, responses are plain text. Without `relay`, other paths are not found."""
        self._relay = relay
        # Where gRPC clients connect; set when it is known.
        self.address = ""
        self._liveness = liveness
        self._values = MergedValues(directory)
        registry = CollectorRegistry()
        registry.register(self._values)
        self._metrics = make_wsgi_app(registry)
        # Held while values are read and while a process is forked or removed, because a fork copies locks that are
        # held.
        self.lock = threading.Lock()
        kind = _IPv6Server if ":" in host else _Server
        try:
            self._server = make_server(host.strip("[]"), port, self._answer, kind, _handler(tls, self.lock, relay))
        except OSError as error:
            raise ConfigError(
                f"can't listen on {host}:{port} for metrics: {error}; choose another port with --metrics-port, or 0 "
                "for no metrics"
            ) from error
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        if relay is not None:
            relay.start(self._internal_answer, self.lock)

    def stop(self) -> None:
        if self._relay is not None:
            self._relay.stop()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def forked(self) -> None:
        """Call this in a child process: closes its copy of the parent's port."""
        self._server.socket.close()
        if self._relay is not None:
            self._relay.forked()

    def remove_process(self, pid: int) -> None:
        """A worker has ended: add its counts to those of other ended workers, and drop its gauges."""
        with self.lock:
            self._values.remove_process(pid)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                with self.lock:
                    body: Iterable[bytes] = self._metrics(environ, start_response)
                return body
            case "/-/healthy" | "/livez":
                return self._answer_liveness(start_response)
            case "/-/ready" | "/readyz":
                with self.lock:
                    ready = self._values.total(f"{NAMESPACE}_ready")
                start_response("200 OK" if ready else "503 Service Unavailable", [_TEXT])
                return [f"{ready:g} workers are ready\n".encode()]
        start_response("404 Not Found", [_TEXT])
        return [f"not found; this port serves {METRICS}, {HEALTHY} and {READY}\n".encode()]

    def _internal_answer(self, path: str) -> tuple[int, str, bytes]:
        """For the console's process: status, content type and body of a GET, or the values themselves."""
        if path == VALUES:
            with self.lock:
                content = self._values.merged()
            return 200, "application/json", as_json(content)
        if path == ADDRESS:
            return 200, "text/plain", self.address.encode()
        head: list[Any] = []
        environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET", "QUERY_STRING": ""}
        body = b"".join(self._answer(environ, lambda status, headers, *_: head.extend((status, headers))))
        return int(head[0].split()[0]), dict(head[1]).get("Content-Type", ""), body

    def _answer_liveness(self, start_response: Callable[..., Any]) -> Iterable[bytes]:
        is_alive = self._liveness is None or self._liveness.is_alive()
        status = "200 OK" if is_alive else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        report = self._liveness.report() if self._liveness else ""
        return [("ok\n" if is_alive else "no worker shows signs of life\n").encode(), report.encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that fails is not worth a traceback."""
        _log.debug("serving the operations port to %s failed: %s", client_address, sys.exc_info()[1])

    def server_bind(self) -> None:
        # Unlike WSGIServer, do not look up the host name in DNS, which may block.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    relay: "Relay | None" = None
    scheme = "http"

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""

    def handle(self) -> None:
        if self.relay is None:
            super().handle()
            return
        line = self.rfile.readline(_MAX_LINE)
        words = line.split()
        if len(words) > 1 and words[1].split(b"?")[0].decode("latin-1") not in OPERATIONS:
            origin = f"{self.scheme} {self.client_address[0]}"
            self.relay.serve(self.connection, self.rfile, self.wfile, line, origin)
        elif line:
            self.rfile = io.BufferedReader(_Unread(line, self.rfile))
            super().handle()


class _Unread(io.RawIOBase):
    """A stream with some bytes put back before it."""

    def __init__(self, first: bytes, rest: Any) -> None:
        self._first = first
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._first[: len(buffer)] or self._rest.read1(len(buffer))
        self._first = self._first[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _handler(
    tls: "TlsFiles | None", lock: threading.Lock, operations_relay: "Relay | None"
) -> type[WSGIRequestHandler]:
    if tls is None:

        class PlainHandler(_Handler):
            relay = operations_relay

        return PlainHandler
    files = tls

    class TlsHandler(_Handler):
        relay = operations_relay
        scheme = "https"

        def setup(self) -> None:
            super().setup()
            stream = TlsStream(self.connection, files, lock)
            self.rfile = io.BufferedReader(stream)
            self.wfile = stream  # type: ignore[assignment]  # unbuffered, as that of a plain socket is

    return TlsHandler
