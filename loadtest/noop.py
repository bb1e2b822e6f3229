"""A server that does no work: nghttpd, a C program, returns the same message for every Predict.

The rate that a generator reaches with it is the generator's own limit.
"""

import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.errors import GeneratorError
from loadtest.generator.request_frames import METHOD
from loadtest.programs import find_program
from loadtest.server_process import free_port

NGHTTPD = "nghttpd"
_START_TIMEOUT_S = 10.0


@contextmanager
def noop_server(message: bytes, threads: int = 2) -> Iterator[str]:
    """The address of a server that always returns `message`, a serialised PredictResponse."""
    program, port = find_program(NGHTTPD), free_port()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, *METHOD.strip("/").split("/"))
        answer.parent.mkdir(parents=True)
        answer.write_bytes(struct.pack(">BI", 0, len(message)) + message)
        options = ["--no-tls", "--address=127.0.0.1", f"--htdocs={folder}", f"--workers={threads}"]
        options += ["--trailer=grpc-status: 0", "--max-concurrent-streams=1000", "--window-bits=20"]
        options += ["--connection-window-bits=30"]
        command = [program, *options, str(port)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_listening(process, port)
                yield f"127.0.0.1:{port}"
            finally:
                process.terminate()


def _wait_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise GeneratorError(f"nghttpd does not listen on port {port}: {error}") from error
            time.sleep(0.01)
