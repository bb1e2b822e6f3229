"""A server process for benchmarks: started with the public command, ready according to its health check, stopped."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ghostless.client import Tls
from ghostless.contract.errors import GhostlessError

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0

# Comes first on the server's path, so that importing torch fails.
_NO_TORCH = 'raise ImportError("the serving process must not import torch")\n'


class BenchError(GhostlessError):
    """A measurement is not possible."""


@dataclass(frozen=True)
class ProcessGroup:
    """A server's processes: `leader` and those that it started, in a group of their own."""

    leader: int

    def cpu_s(self) -> float:
        """User and system time of the processes so far.

        From each process's CPU clock: the sum of user and system time in /proc/PID/stat, in nanoseconds instead of
        ticks of 10 ms, which are 1% of a second's load.
        """
        return sum(time.clock_gettime(_cpu_clock(pid)) for pid in self.processes())

    def processes(self) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and os.getpgid(int(entry.name)) == self.leader:
                    yield int(entry.name)
            except ProcessLookupError:
                continue

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.leader, number)


@dataclass(frozen=True)
class ServerProcess:
    process: subprocess.Popen[bytes]
    port: int
    start_to_ready_s: float

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def group(self) -> ProcessGroup:
        """The server and its workers: the session is the server's own."""
        return ProcessGroup(self.process.pid)

    def torch_libraries(self) -> set[str]:
        """Library files of torch that the server's processes have loaded."""
        found: set[str] = set()
        for pid in self.group.processes():
            try:
                mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
            except OSError:
                continue
            paths = {Path(line.split(maxsplit=5)[5]) for line in mapped if "/" in line}
            found |= {str(path) for path in paths if "torch" in path.parts or path.name.startswith("libtorch")}
        return found

    def stop(self) -> int:
        """Stop the server with SIGTERM, as an operator would; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.group.send_signal(signal.SIGKILL)
            return self.process.wait()


@dataclass(frozen=True)
class Program:
    """The `ghostless` program to run: its command, working directory and PYTHONPATH (None: that of this process)."""

    command: Sequence[str]
    folder: Path | None = None
    python_path: str | None = None


@contextmanager
def running_server(
    repository: Path,
    *options: str,
    module: str = "ghostless",
    program: Program | None = None,
    tls: Tls | None = None,
) -> Iterator[ServerProcess]:
    """Run `ghostless serve` on a free port in an environment without torch, until it is ready; or the `serve` command
    of another module or program with the same options. `tls`: what its clients need, if it speaks TLS."""
    program = program or Program([sys.executable, "-m", module])
    with tempfile.TemporaryDirectory() as folder:
        blocked = Path(folder) / "torch"
        blocked.mkdir()
        (blocked / "__init__.py").write_text(_NO_TORCH)
        log = Path(folder) / "log"
        port = free_port()
        inherited = os.environ.get("PYTHONPATH", "") if program.python_path is None else program.python_path
        path = os.pathsep.join(filter(None, (folder, inherited)))
        ports = ["--port", str(port), "--metrics-port", str(free_port())]
        arguments = ["serve", "--repository", str(repository.absolute()), *ports, *options]
        began = time.monotonic()
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*program.command, *arguments],
                cwd=program.folder,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        server = ServerProcess(process, port, 0.0)
        try:
            _wait_ready(server, log, tls)
            yield ServerProcess(process, port, time.monotonic() - began)
        finally:
            if process.poll() is None:
                server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _cpu_clock(pid: int) -> int:
    """The clock id of clock_getcpuclockid(3): Linux encodes the process id in it."""
    return ~pid << 3 | 2


def _wait_ready(server: ServerProcess, log: Path, tls: Tls | None) -> None:
    until = time.monotonic() + READY_TIMEOUT_S
    while not _is_serving(server, tls):
        ended = server.process.poll()
        if ended is not None or time.monotonic() > until:
            state = "is not ready" if ended is None else f"ended with status {ended}"
            last = " | ".join(log.read_text(errors="replace").splitlines()[-5:])
            raise BenchError(f"the server {state}; its last output: {last or 'none'}")
        time.sleep(0.01)


def _is_serving(server: ServerProcess, tls: Tls | None) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
    except OSError:
        return False
    # A new channel each time, because a channel that failed waits before it reconnects.
    address = server.address
    with grpc.insecure_channel(address) if tls is None else grpc.secure_channel(address, tls.credentials()) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
