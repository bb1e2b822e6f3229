"""`--workers N`: N processes on one port, watched, and started anew when one dies or hangs.

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
from serving.heartbeat import INTERVAL_S
from serving.logs import WORKER_NAME
from serving.restarts import RestartPolicy
from serving.stop_signal import STOP_SIGNALS, log_hang_up, on_stop
from serving.telemetry.runtime import Runtime, values_directory, workers_socket
from serving.telemetry.supervision import RestartReason, SupervisorMetrics
from serving.transport.connection_handoff import ConnectionHandoff

if TYPE_CHECKING:
    from serving.engines.interface import Engine

_log = logging.getLogger(__name__)

_EXIT_MISCONFIGURED = 3
# Without a heartbeat for this share of --worker-timeout-s, a worker gets no new connections.
_SILENT_SHARE = 0.4
# What workers need after their last call has ended, before they are killed.
_STOP_GRACE_S = 15.0


@dataclass(frozen=True)
class _CannotStart:
    """Sent by a worker that will not do better the next time."""

    reason: str


@dataclass
class _Worker:
    """A process, where its messages come from, and when it was started and became ready (0.0: not yet)."""

    process: ForkProcess
    receiver: Connection
    started: float
    ready: float = 0.0
    hung: bool = False


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
        self._workers: dict[int, _Worker] = {}
        self._policy = RestartPolicy()
        # When to start those that ended.
        self._due: dict[int, float] = {}
        self._metrics = SupervisorMetrics(values_directory(runtime.directory) if config.metrics else None)
        self._example = ""
        self._announced = False
        self._stopping_since = 0.0
        self._hung_up = False
        # Signs of life count from here: the supervisor itself may have been stopped.
        self._watched_since = time.monotonic()
        self._stepped = self._watched_since

    def run(self) -> None:
        """Until SIGTERM or SIGINT; then every worker drains. GhostlessError if a worker can't start at all."""
        on_stop(self._stop, self._hang_up)
        internal = str(workers_socket(self._runtime.directory)) if self._config.has_http else ""
        with ConnectionHandoff(
            self._config.host, self._config.port, self._config.connection_limits, internal
        ) as self._handoff:
            config = self._config.model_copy(update={"port": self._handoff.port})
            for index in range(config.worker_count):
                self._start(index, config)
            while self._workers or self._due:
                self._step(config)

    def _start(self, index: int, config: ServeConfig) -> None:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        handoff_channel = self._handoff.open(index)
        self._runtime.heartbeats.forget(index)
        arguments = (index, config, sender, os.getpid(), self._runtime, self._wrap, self._handoff, handoff_channel)
        process = context.Process(target=_run_worker, args=arguments, name=WORKER_NAME.format(index))
        # A worker must not be signalled while it still has the supervisor's handlers.
        signals = (*STOP_SIGNALS, signal.SIGHUP)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        with self._runtime.forking():
            process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        sender.close()
        handoff_channel.close()
        self._workers[index] = _Worker(process, receiver, time.monotonic())
        if self._stopping_since:
            process.terminate()

    def _step(self, config: ServeConfig) -> None:
        """Handle whatever happens next: a connection comes or closes, a worker becomes ready, hangs, or ends."""
        pending = {worker.receiver: index for index, worker in self._workers.items() if not worker.ready}
        ended = {worker.process.sentinel: index for index, worker in self._workers.items()}
        sockets = self._handoff.sockets()
        happened: list[Any] = wait([*pending, *ended, *sockets], timeout=INTERVAL_S)
        self._handoff.handle([each for each in happened if each in sockets])
        if self._stopping_since and not self._handoff.sockets():
            # Not before: workers serve on while balancers are given time to notice (--drain-delay-s).
            self._handoff.stop_accepting()
        for receiver in happened:
            if receiver in pending:
                self._receive_from_worker(pending[receiver], receiver)
        ready = sum(bool(worker.ready) for worker in self._workers.values())
        if not self._announced and ready == config.worker_count:
            self._announced = True
            self._on_ready(config.port, self._example)
        for sentinel in happened:
            if sentinel in ended:
                self._on_ended(ended[sentinel])
        self._watch()
        self._start_due(config)
        if self._hung_up:
            self._hung_up = False
            log_hang_up()

    def _receive_from_worker(self, index: int, receiver: Connection) -> None:
        try:
            message = receiver.recv()
        except EOFError:  # it ended; its sentinel says so too
            return
        if not isinstance(message, _CannotStart):
            self._example = message
            self._workers[index].ready = time.monotonic()
            self._handoff.mark_ready(index)
        elif self._announced:
            # The others serve on; it is tried again, for the reason may pass.
            _log.error("worker %d can't start: %s", index, message.reason)
        else:
            self._stop()
            self._join()
            raise ConfigError(message.reason)

    def _watch(self) -> None:
        """Kill workers that hang; their connections end, so that clients come back to others."""
        now, since = time.monotonic(), self._stepped
        self._stepped = now
        self._runtime.heartbeats.give_supervisors()
        if now - since > 4 * INTERVAL_S:
            self._watched_since = now
        limit_s = self._config.worker_timeout_s or float("inf")
        for index, worker in self._workers.items():
            if not self._handoff.is_ready(index):
                continue  # it starts, or drains
            silent_s = now - max(self._runtime.heartbeats.last(index), worker.ready, self._watched_since)
            self._handoff.mark_silent(index, silent_s > _SILENT_SHARE * limit_s)
            if silent_s > limit_s and not worker.hung:
                _log.error(
                    "worker %d (pid %d) hangs: no heartbeat for %.1f s", index, worker.process.pid or 0, silent_s
                )
                worker.hung = True
                worker.process.kill()
        drain_s = self._config.drain_delay_s + self._config.drain_s + _STOP_GRACE_S
        if self._stopping_since and now > self._stopping_since + drain_s:
            for index, worker in self._workers.items():
                if not worker.hung:
                    _log.error("worker %d did not stop within %g s and is killed", index, drain_s)
                    worker.hung = True
                    worker.process.kill()

    def _on_ended(self, index: int) -> None:
        worker = self._workers.pop(index)
        worker.process.join()
        worker.receiver.close()
        self._handoff.close(index)
        self._runtime.ended(worker.process.pid)
        if self._stopping_since:
            return
        lived_s = time.monotonic() - worker.started
        delay_s = self._policy.delay_s(index, lived_s, self._runtime.heartbeats.has_answered(index))
        reason, how = _reason(worker)
        self._metrics.restarted(reason)
        when = f" in {delay_s:g} s" if delay_s else ""
        _log.error("worker %d (pid %d) %s; starting another%s", index, worker.process.pid or 0, how, when)
        self._due[index] = time.monotonic() + delay_s

    def _start_due(self, config: ServeConfig) -> None:
        for index, due in list(self._due.items()):
            if self._stopping_since:
                del self._due[index]
            elif time.monotonic() >= due:
                del self._due[index]
                self._start(index, config)

    def _stop(self) -> None:
        self._stopping_since = self._stopping_since or time.monotonic()
        for worker in self._workers.values():
            if worker.process.is_alive():
                worker.process.terminate()

    def _hang_up(self) -> None:
        self._hung_up = True

    def _join(self) -> None:
        for worker in self._workers.values():
            worker.process.join()
        self._workers.clear()


def _reason(worker: _Worker) -> tuple[RestartReason, str]:
    """Why it ended, for the metric and for the log."""
    status = worker.process.exitcode or 0
    if worker.hung:
        return "hung", "was killed because it hung"
    if status < 0:
        return "killed", f"was killed by {signal.Signals(-status).name}"
    return "exited", f"exited with status {status}"


def _run_worker(
    index: int,
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
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # The supervisor decides what a SIGHUP to all of them means.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOP_SIGNALS, signal.SIGHUP))
    from serving.server import run_server

    def ready(_: int, example: str) -> None:
        supervisor.send(example)

    try:
        run_server(
            config,
            ready,
            handoff_channel=handoff_channel,
            parent=parent,
            wrap=wrap,
            directory=runtime.directory,
            heartbeats=runtime.heartbeats,
            worker=index,
        )
    except GhostlessError as error:
        supervisor.send(_CannotStart(str(error)))
        sys.exit(_EXIT_MISCONFIGURED)
