"""Relays connections of the operations port to the console's process, which is started for the first connection.

The relay runs in the process that owns the port. That process forks workers, so this module uses the standard library
only and leaves HTTP to the console's process: it copies bytes in both directions, and a crash of the console does not
affect it. Metrics and health checks are never relayed.
"""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from serving.console.settings import ConsoleSettings, console_socket, operations_socket

_log = logging.getLogger(__name__)

_MAX_CONNECTIONS = 256
_COPY_BYTES = 1 << 16
# A connection is closed after this time without a byte, so a call may take no longer.
_IDLE_S = 120.0
_START_S = 20.0
_POLL_S = 0.02
# A console process that exits sooner than this after its start is restarted only when this time has passed.
_RESTART_S = 1.0
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b'Content-Length: %d\r\n\r\n{"error":"%s","code":"UNAVAILABLE","status":503}'
)

# Status, content type and body for a path.
InternalAnswer = Callable[[str], tuple[int, str, bytes]]


class Relay:
    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._path = console_socket(settings.directory)
        self._slots = threading.Semaphore(_MAX_CONNECTIONS)
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._stopped = False
        self._listener = socket.socket(socket.AF_UNIX)

    def start(self, answer: InternalAnswer, forking: threading.Lock) -> None:
        """Answer the console's process. `forking` is held while a worker is forked."""
        self._answer = answer
        self._forking = forking
        self._listener.bind(operations_socket(self._settings.directory))
        self._listener.listen()
        threading.Thread(target=self._accept, name="console answers", daemon=True).start()

    def stop(self) -> None:
        with self._starting:
            self._stopped = True
            process = self._process
        self._listener.close()
        if process is not None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def forked(self) -> None:
        """Called in a worker after the fork: closes the worker's copy of the listener."""
        self._listener.close()

    def serve(self, client: socket.socket, rfile: Any, wfile: Any, first: bytes, origin: str) -> None:
        """Relay a connection until it ends. `first`: bytes that were already read; `origin`: its scheme and peer."""
        if not self._slots.acquire(blocking=False):
            _refuse(wfile, b"too many connections to the console; try again")
            return
        try:
            client.settimeout(_IDLE_S)
            upstream = self._connect()
            if upstream is None:
                # A response to a request that was not read would be lost with the connection.
                rfile.read1(_COPY_BYTES)
                _refuse(wfile, b"the console's process does not start; see the server's log")
                return
            with upstream:
                upstream.sendall(f"{origin}\n".encode() + first)
                back = threading.Thread(target=_copy_back, args=(upstream, wfile, client), daemon=True)
                back.start()
                with suppress(OSError, ValueError):
                    while data := rfile.read1(_COPY_BYTES):
                        upstream.sendall(data)
                with suppress(OSError):
                    upstream.shutdown(socket.SHUT_WR)
                back.join()
        finally:
            self._slots.release()

    def _connect(self) -> socket.socket | None:
        """A connection to the console's process, which is started if it is not running."""
        until = time.monotonic() + _START_S
        while True:
            upstream = socket.socket(socket.AF_UNIX)
            upstream.settimeout(_IDLE_S)
            try:
                upstream.connect(self._path)
            except OSError:
                upstream.close()
            else:
                return upstream
            if not self._ensure_started() or time.monotonic() > until:
                return None
            time.sleep(_POLL_S)

    def _ensure_started(self) -> bool:
        """Whether the process was running or has now been started."""
        with self._starting:
            if self._process is not None and self._process.poll() is None:
                return True
            now = time.monotonic()
            if self._stopped or (self._process is not None and now - self._started < _RESTART_S):
                return False
            if self._process is not None:
                _log.error("the console's process ended with status %s; starting another", self._process.returncode)
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            command = [sys.executable, "-P", "-m", "serving.console", self._settings.as_json()]
            # A worker that is forked at the same time must not inherit a lock of subprocess.
            with self._forking:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            self._started = now
            return True

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(_IDLE_S)
                path = connection.makefile("rb").readline().decode().strip()
                status, kind, body = self._answer(path)
                connection.sendall(json.dumps([status, kind]).encode() + b"\n" + body)


def ask_operations(directory: str, path: str) -> tuple[int, str, bytes]:
    """Called in the console's process: status, content type and body that the process that owns the port answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_IDLE_S)
        connection.connect(operations_socket(directory))
        connection.sendall(f"{path}\n".encode())
        head, _, body = connection.makefile("rb").read().partition(b"\n")
    status, kind = json.loads(head)
    return status, kind, body


def _copy_back(upstream: socket.socket, wfile: Any, client: socket.socket) -> None:
    with suppress(OSError, ValueError):
        while data := upstream.recv(_COPY_BYTES):
            wfile.write(data)
    with suppress(OSError, ValueError):
        wfile.close()
    # Also ends the other direction: otherwise a client that keeps the connection open would wait in vain.
    for each in (client, upstream):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _refuse(wfile: Any, why: bytes) -> None:
    with suppress(OSError):
        body = b'{"error":"%s","code":"UNAVAILABLE","status":503}' % why
        wfile.write(_BUSY % (len(body), why))
