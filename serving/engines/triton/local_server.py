"""tritonserver processes on loopback, for trials, tests and benchmarks without Docker or Kubernetes."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import grpc
from tritonclient.grpc import service_pb2 as oip
from tritonclient.grpc import service_pb2_grpc

from ghostless.contract import repository
from ghostless.contract.errors import ConfigError, RepositoryError
from serving.errors import UnavailableError

LOOPBACK = "127.0.0.1"
INSTALL_COMMAND = "make triton"
_BUILT = Path(__file__).parents[3] / ".triton" / "bin"
_EXIT_S = 20
_PYTHON_CONFIG = Path("configs/python.pbtxt")
_TAIL = 2000


def find_binary(name: str = "tritonserver") -> Path:
    """The path of the program: from `make triton`, or on the PATH."""
    built = _BUILT / name
    if built.is_file():
        return built
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"{name} not found in {_BUILT} or on PATH; install it with `{INSTALL_COMMAND}`")
    return Path(found)


@dataclass(frozen=True)
class Ports:
    grpc: int
    http: int
    metrics: int

    @classmethod
    def free(cls) -> "Ports":
        """Three free ports; all are held until the last is known, so that they differ."""
        sockets = [socket.socket() for _ in range(3)]
        try:
            for each in sockets:
                each.bind((LOOPBACK, 0))
            return cls(*(each.getsockname()[1] for each in sockets))
        finally:
            for each in sockets:
                each.close()


class TritonServer:
    """One tritonserver, in explicit model control mode, with the models of a repository on its Python backend."""

    def __init__(self, root: Path, log_file: Path, ports: Ports | None = None, models: Sequence[str] | None = None):
        self._root = root
        self._log_file = log_file
        self.ports = ports or Ports.free()
        self._models = servable(root) if models is None else list(models)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.ports.grpc}"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it without waiting; `wait_ready` waits until it is ready."""
        command = [str(find_binary()), *self._arguments()]
        with self._open_log() as log:
            # In its own process group, so that Ctrl-C in a terminal stops it only through `stop`.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until it is live and every model that it was started with has loaded or failed."""
        ends = time.monotonic() + timeout_s
        with grpc.insecure_channel(self.address, options=[("grpc.initial_reconnect_backoff_ms", 100)]) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            while time.monotonic() < ends:
                if not self.running:
                    raise UnavailableError(f"tritonserver ended before it was ready; {self._tail()}")
                try:
                    if stub.ServerReady(oip.ServerReadyRequest(), timeout=1.0, wait_for_ready=True).ready:
                        return
                except grpc.RpcError:
                    continue
                time.sleep(0.05)
        raise UnavailableError(f"tritonserver was not ready within {timeout_s:g} s; {self._tail()}")

    def stop(self) -> None:
        """Stop it gracefully: accepted requests are finished."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S + 5)
        self.kill()

    def kill(self) -> None:
        """Kill it immediately, like a crash."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        # Its instances are separate processes, and a busy one may survive it. It has its own session, so its process
        # group contains no other processes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _arguments(self) -> list[str]:
        return [
            f"--model-repository={self._root}",
            "--model-config-name=python",
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in self._models),
            # A model that does not load must not prevent the others from being served.
            "--exit-on-error=false",
            "--strict-readiness=false",
            f"--exit-timeout-secs={_EXIT_S}",
            f"--grpc-address={LOOPBACK}",
            f"--grpc-port={self.ports.grpc}",
            f"--http-address={LOOPBACK}",
            f"--http-port={self.ports.http}",
            f"--metrics-address={LOOPBACK}",
            f"--metrics-port={self.ports.metrics}",
            # Allow the pings with which facades keep idle connections alive.
            "--grpc-http2-min-recv-ping-interval-without-data=5000",
            "--grpc-keepalive-permit-without-calls=1",
        ]

    def _open_log(self) -> IO[bytes]:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        return open(self._log_file, "ab")

    def _tail(self) -> str:
        with open(self._log_file, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log_file) - _TAIL))
            return f"the end of {self._log_file}:\n{log.read().decode(errors='replace')}"


def servable(root: Path) -> list[str]:
    """The models of a repository that have the files for Triton's Python backend."""
    entries = repository.scan(root)
    lacking = [name for name, entry in entries.items() if not (entry.path / _PYTHON_CONFIG).is_file()]
    if lacking or not entries:
        what = f"has no {_PYTHON_CONFIG} for {', '.join(lacking)}" if lacking else "has no models"
        raise RepositoryError(f"{root} {what}; write it with `ghostless export`")
    return list(entries)
