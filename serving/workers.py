"""`--workers N`: N processes on one port, watched, and started anew when one dies.

The supervisor accepts connections and hands each to the worker that has the fewest
(serving/transport/connection_handoff.py). It loads neither gRPC nor ONNX Runtime, so it can fork at any time.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import TYPE_CHECKING, Any

from ghostless.contract.errors import ConfigError, GhostlessError
from serving.config import ServeConfig
from serving.telemetry.runtime import Runtime
from serving.transport.connection_handoff import ConnectionHandoff

if TYPE_CHECKING:
    from serving.engines.interface import Engine

_log = logging.getLogger(__name__)

_RESTART_DELAY_S = 0.5
_EXIT_MISCONFIGURED = 3
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class _CannotStart:
    """Sent by a worker that will not do better the next time."""

    reason: str


class Supervisor:
    def __init__(
        self,
        config: ServeConfig,
        on_ready: Callable[[int, str], None],
        runtime: Runtime,
        wrap: "Callable[[Engine], Engine]" = lambda engine: engine,
    ) -> None:
        """`wrap`: as `serving.server.run_server` takes it."""
        self._config = config
        self._runtime = runtime
        self._on_ready = on_ready
        self._wrap = wrap
        self._workers: dict[int, tuple[ForkProcess, Connection]] = {}
        self._ready: set[int] = set()
        self._example = ""
        self._announced = False
        self._stopping = False

    def run(self) -> None:
        """Until SIGTERM or SIGINT; then every worker drains. GhostlessError if a worker can't start at all."""
        for number in _STOP_SIGNALS:
            signal.signal(number, self._stop)
        with ConnectionHandoff(self._config.host, self._config.port, self._config.connection_limits) as self._handoff:
            config = self._config.model_copy(update={"port": self._handoff.port})
            for index in range(config.worker_count):
                self._start(index, config)
            while self._workers:
                self._step(config)

    def _start(self, index: int, config: ServeConfig) -> None:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        handoff_channel = self._handoff.open(index)
        arguments = (config, sender, os.getpid(), self._runtime, self._wrap, self._handoff, handoff_channel)
        process = context.Process(target=_run_worker, args=arguments, name=f"worker-{index}")
        # A worker must not be signalled while it still has the supervisor's handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        with self._runtime.forking():
            process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        sender.close()
        handoff_channel.close()
        self._workers[index] = (process, receiver)
        if self._stopping:
            process.terminate()

    def _step(self, config: ServeConfig) -> None:
        """Handle whatever happens next: a connection comes or closes, a worker becomes ready, or ends."""
        pending = {r: i for i, (_, r) in self._workers.items() if i not in self._ready}
        ended = {p.sentinel: i for i, (p, _) in self._workers.items()}
        sockets = self._handoff.sockets()
        happened: list[Any] = wait([*pending, *ended, *sockets], timeout=1.0)
        self._handoff.handle([each for each in happened if each in sockets])
        if self._stopping and not self._handoff.sockets():
            # Not before: workers serve on while balancers are given time to notice (--drain-delay-s).
            self._handoff.stop_accepting()
        for receiver in happened:
            if receiver in pending:
                self._receive_from_worker(pending[receiver], receiver)
        if len(self._ready) == self._config.worker_count and not self._announced:
            self._announced = True
            self._on_ready(config.port, self._example)
        for sentinel in happened:
            if sentinel in ended:
                self._replace(ended[sentinel], config)

    def _receive_from_worker(self, index: int, receiver: Connection) -> None:
        try:
            message = receiver.recv()
        except EOFError:  # it ended; its sentinel says so too
            return
        if isinstance(message, _CannotStart):
            self._stop()
            self._join()
            raise ConfigError(message.reason)
        self._example = message
        self._ready.add(index)
        self._handoff.mark_ready(index)

    def _replace(self, index: int, config: ServeConfig) -> None:
        process, receiver = self._workers.pop(index)
        process.join()
        receiver.close()
        self._handoff.close(index)
        self._runtime.ended(process.pid)
        self._ready.discard(index)
        if self._stopping:
            return
        _log.error("worker %d (pid %d) ended with %s; starting another", index, process.pid, process.exitcode)
        time.sleep(_RESTART_DELAY_S)
        self._start(index, config)

    def _stop(self, *_: object) -> None:
        self._stopping = True
        for process, _receiver in self._workers.values():
            if process.is_alive():
                process.terminate()

    def _join(self) -> None:
        for process, _receiver in self._workers.values():
            process.join()
        self._workers.clear()


def _run_worker(
    config: ServeConfig,
    supervisor: Connection,
    parent: int,
    runtime: Runtime,
    wrap: "Callable[[Engine], Engine]",
    handoff: ConnectionHandoff,
    handoff_channel: socket.socket,
) -> None:
    """In the worker process."""
    runtime.forked()
    handoff.forked()
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    from serving.server import run_server

    def ready(_: int, example: str) -> None:
        supervisor.send(example)

    try:
        run_server(
            config, ready, handoff_channel=handoff_channel, parent=parent, wrap=wrap, directory=runtime.directory
        )
    except GhostlessError as error:
        supervisor.send(_CannotStart(str(error)))
        sys.exit(_EXIT_MISCONFIGURED)
