"""Run a load: prepare the requests, start the processes, follow their progress, add up their results."""

import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import TypeVar

from loadtest.errors import GeneratorError
from loadtest.generator.plan import LoadPlan
from loadtest.generator.requests import PreparedLoad, prepare_load
from loadtest.generator.result import Interval, LoadResult
from loadtest.generator.tally import Ended, Failed, Tally
from loadtest.generator.totals import LoadTotals
from loadtest.generator.worker import Assignment, work

_START_TIMEOUT_S = 60.0
# Time between the start message and the first request, so that every process has received the message by then.
_LEAD_S = 0.05
# Maximum time to wait for a process after its scheduled end.
_GRACE_S = 30.0
_STOP_S = 5.0

Message = TypeVar("Message")


@dataclass(frozen=True)
class LoadProgress:
    """Progress of a load: `elapsed_s` of `measured_s`, negative during the warm-up; `last` is the last complete
    interval."""

    elapsed_s: float
    measured_s: float
    so_far: LoadResult
    last: Interval | None


def run_load(
    plan: LoadPlan, on_progress: Callable[[LoadProgress], None] | None = None, prepared: PreparedLoad | None = None
) -> LoadResult:
    """Put the load on the server and return the result; Ctrl-C ends it early, with the result so far.

    `prepared`: the result of `prepare_load` for this plan, if it is already available.
    """
    prepared, cores = prepared or prepare_load(plan), frozenset(os.sched_getaffinity(0))
    assignments = [Assignment(plan, share, prepared, cores) for share in range(plan.processes)]
    processes = _Processes(assignments)
    try:
        return _follow(plan, processes, on_progress)
    finally:
        processes.stop()


def forking() -> ForkServerContext:
    """Starts processes by forking a clean process that has already imported their code. This process can't be forked,
    because it has threads of gRPC, and a new interpreter takes half a second, longer than many turns of `loadtest
    compare`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ghostless.commands.main", work.__module__])
    # It must import the same modules as this process, not modules of the same name in the working directory.
    here = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    before = {name: os.environ.get(name) for name in here}
    os.environ.update(here)
    try:
        forkserver.ensure_running()
    except OSError as error:
        raise GeneratorError(
            f"cannot start a load generator process with a socket in {tempfile.gettempdir()}: {error}"
        ) from error
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


class _Processes:
    def __init__(self, assignments: list[Assignment]) -> None:
        context = forking()
        self._processes: list[BaseProcess] = []
        self.pipes: list[Pipe] = []
        try:
            for assignment in assignments:
                ours, theirs = context.Pipe()
                process = context.Process(target=work, args=(theirs, assignment), daemon=True)
                process.start()
                theirs.close()
                self._processes.append(process)
                self.pipes.append(ours)
            for pipe in self.pipes:
                if not pipe.poll(_START_TIMEOUT_S):
                    raise GeneratorError(f"a load generator process was not ready within {_START_TIMEOUT_S:g} s")
                receive(pipe)
        except BaseException:
            self.stop()
            raise

    def begin(self) -> float:
        begins = time.monotonic() + _LEAD_S
        for pipe in self.pipes:
            pipe.send(begins)
        return begins

    def ask_to_end(self) -> None:
        for pipe in self.pipes:
            pipe.send("stop")

    def stop(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self._processes:
            process.join(_STOP_S)
            if process.is_alive():
                process.terminate()
                process.join()


def receive(pipe: Pipe) -> object:
    """The next message of a process. Raises GeneratorError if the process reports a failure or died."""
    try:
        message: object = pipe.recv()
    except EOFError:
        raise GeneratorError("a load generator process died; its output is above") from None
    if isinstance(message, Failed):
        raise GeneratorError(message.reason)
    return message


def _follow(plan: LoadPlan, processes: _Processes, on_progress: Callable[[LoadProgress], None] | None) -> LoadResult:
    totals = LoadTotals(plan)
    cpu_s = time.thread_time()
    counted_from = processes.begin() + plan.warm_up_s
    ended: list[Ended] = []
    running = list(processes.pipes)
    interrupted = False
    gives_up = counted_from + plan.measured_s + plan.deadline_s + _GRACE_S
    while running:
        try:
            for pipe in wait(running, timeout=plan.interval_s):
                assert isinstance(pipe, Pipe)
                message = receive(pipe)
                if isinstance(message, Tally):
                    totals.add(message)
                elif isinstance(message, Ended):
                    ended.append(message)
                    running.remove(pipe)
            now = time.monotonic()
            if now > gives_up:
                raise GeneratorError(f"the load generator was still running {_GRACE_S:g} s after its end time")
            if on_progress is not None:
                elapsed_s = min(now - counted_from, plan.measured_s)
                so_far = totals.result(max(0.0, elapsed_s))
                on_progress(LoadProgress(elapsed_s, plan.measured_s, so_far, totals.last_interval))
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            processes.ask_to_end()
    cost_s = sum(end.cpu_s for end in ended) + time.thread_time() - cpu_s
    stopped_s = max((end.stopped_s for end in ended), default=math.nan)
    return totals.result(max(0.0, min(stopped_s, plan.measured_s)), cost_s, interrupted)
