"""`ghostless serve` in its own process, as users run it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


class ServeProcess:
    """A started server; its output is collected continuously."""

    def __init__(
        self,
        repository: Path,
        *flags: str,
        folder: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        port: int | None = 0,
        module: str = "ghostless",
    ) -> None:
        """Start it in `folder`, with `environment` added to that of the test. `port` None leaves --port to the
        environment.

        `module` must have a command `serve` with the same options."""
        started = time.monotonic()
        command = [
            sys.executable,
            "-m",
            module,
            "serve",
            "--repository",
            str(repository),
            "--host",
            "127.0.0.1",
        ]
        self.process = subprocess.Popen(
            [*command, *([] if port is None else ["--port", str(port)]), "--workers", "1", *flags],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Without a terminal, as a service has none.
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(60), self.output
        self.seconds_to_ready = time.monotonic() - started
        assert self.process.poll() is None, self.output

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    @property
    def port(self) -> int:
        line = next(line for line in self.lines if line.startswith("ready:"))
        return int(line.split(" on ")[1].split(",")[0].rsplit(":", 1)[1])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it with a signal; returns its exit status."""
        self.process.send_signal(number)
        status = self.process.wait(30)
        self._reader.join(10)
        return status

    def close(self) -> None:
        """Kill it if it is still running, and close its output."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def wait_for(self, text: str) -> None:
        try:
            eventually(lambda: text in self.output, f"{text!r} in the output")
        except AssertionError as error:
            raise AssertionError(f"{error}; the output is:\n{self.output}") from None

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith(("  ", "{")) and "ghostless predict" in line:
                self._ready.set()
        self._ready.set()


@contextmanager
def served(
    repository: Path,
    *flags: str,
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    port: int | None = 0,
    module: str = "ghostless",
) -> Iterator[ServeProcess]:
    server = ServeProcess(repository, *flags, folder=folder, environment=environment, port=port, module=module)
    try:
        yield server
    finally:
        server.close()
