"""One process of the generator: sends requests when they are due, receives and counts responses."""

import gc
import itertools
import math
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from loadtest.errors import GeneratorError
from loadtest.generator import request_frames
from loadtest.generator.arrivals import due_times
from loadtest.generator.checks import AnswerChecker
from loadtest.generator.connection_pool import ConnectionPool
from loadtest.generator.exchange import Exchange, RequestIdSequence
from loadtest.generator.plan import LoadPlan
from loadtest.generator.requests import PreparedLoad
from loadtest.generator.tally import Ended, Failed, Tally

_HOUSEKEEPING_S = 0.02
_RESOURCE_EXHAUSTED = 8


@dataclass(frozen=True)
class Assignment:
    """The part of the load that process number `share` sends, on `cores`."""

    plan: LoadPlan
    share: int
    prepared: PreparedLoad
    cores: frozenset[int]


def work(pipe: Pipe, assignment: Assignment) -> None:
    """Main function of the process: connect, report it, wait for the start time, send the load, report Ended or
    Failed."""
    # The parent handles Ctrl-C and then asks this process to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, assignment.cores)
    try:
        worker = _Worker(pipe, assignment)
        pipe.send("ready")
        worker.run(begins=pipe.recv())
    except GeneratorError as error:
        pipe.send(Failed(str(error)))
    except (EOFError, BrokenPipeError):
        return  # the parent has ended


class _Worker:
    def __init__(self, pipe: Pipe, assignment: Assignment) -> None:
        self._pipe = pipe
        self._plan = plan = assignment.plan
        self._share = share = assignment.share
        prepared = assignment.prepared
        self._rows = [request.rows for request in prepared.requests]
        headers = request_frames.header_blocks(
            plan.address, plan.deadline_s, plan.metadata, "https" if plan.tls_ca else "http"
        )
        messages = [request.message for request in prepared.requests]
        requests = request_frames.PreparedFrames(headers, messages)
        self._pool = ConnectionPool(plan.address, requests, _part(plan.connections, plan.processes, share), plan.tls_ca)
        self._pool.wait_ready()
        self._checker = AnswerChecker(plan.checks, prepared.outputs, plan.mix.version, plan.seed + share)
        self._ids = RequestIdSequence(share)
        self._prepared = itertools.cycle(range(len(messages)))
        # Processes begin with different requests, so that they don't send the same ones at the same time.
        for _ in range(share * len(messages) // plan.processes):
            next(self._prepared)
        self._left = _part(plan.max_requests, plan.processes, share)
        self._counted_from = 0.0
        self._tally = Tally(0)

    def run(self, begins: float) -> None:
        self._counted_from = begins + self._plan.warm_up_s
        self._tally = Tally(self._interval(begins))
        # This code creates no reference cycles, and a garbage collection would show up as latency.
        gc.freeze()
        gc.disable()
        cpu_s = time.process_time()
        stopped = self._closed_loop(begins) if self._plan.arrivals == "closed" else self._open_loop(begins)
        self._housekeep(stopped)
        self._drain()
        self._pool.close()
        self._flush(self._tally.interval)
        self._pipe.send(Ended(stopped - self._counted_from, time.process_time() - cpu_s))

    def _open_loop(self, begins: float) -> float:
        """Send at the scheduled times; returns the end time."""
        schedule: Iterator[float] = itertools.islice(due_times(self._plan, self._share), self._left)
        ends = self._counted_from + self._plan.measured_s
        due = begins + next(schedule, math.inf)
        tidy_at = begins
        while True:
            now = time.monotonic()
            while due <= now:
                self._send(due, time.monotonic())
                due = begins + next(schedule, math.inf)
            if now >= tidy_at:
                tidy_at = self._housekeep(now)
            if due == math.inf and (now >= ends or self._left <= 0):
                return now
            ended, stop = self._pool.step(max(0.0, min(due, tidy_at) - now), (self._pipe.fileno(),))
            if ended:
                self._finish(ended)
            if stop:
                return time.monotonic()

    def _closed_loop(self, begins: float) -> float:
        """Keep a constant number of requests in flight; returns the end time."""
        ends = self._counted_from + self._plan.measured_s
        while (now := time.monotonic()) < begins:
            time.sleep(begins - now)
        for _ in range(_part(self._plan.concurrency, self._plan.processes, self._share)):
            self._send(now, now)
        tidy_at = begins
        while True:
            now = time.monotonic()
            if now >= tidy_at:
                tidy_at = self._housekeep(now)
            ended, stop = self._pool.step(max(0.0, tidy_at - now), (self._pipe.fileno(),))
            now = time.monotonic()
            if stop or now >= ends or self._left <= 0:
                self._finish(ended)
                return now
            for _ in ended:
                self._send(now, now)
            self._finish(ended)

    def _drain(self) -> None:
        """Wait until every request has a response or is over its deadline; send nothing new."""
        while self._pool.under_way:
            self._finish(self._pool.step(_HOUSEKEEPING_S, ())[0])
            self._housekeep(time.monotonic())

    def _send(self, due: float, now: float) -> None:
        self._left -= 1
        exchange = Exchange(due, next(self._prepared), self._ids.next())
        if due >= self._counted_from:
            self._tally.due += 1
        if not self._pool.send(exchange, now):
            exchange.code = request_frames.UNAVAILABLE
            self._finish([exchange])

    def _finish(self, ended: list[Exchange]) -> None:
        now = time.monotonic()
        tally, counted_from = self._tally, self._counted_from
        for exchange in ended:
            code, counts = exchange.code, exchange.due >= counted_from
            if counts:
                if exchange.sent:
                    tally.sent += 1
                    tally.late_s.append(exchange.sent - exchange.due)
                if code:
                    tally.codes[code] += 1
            if code:
                tally.failed += 1
                if code == _RESOURCE_EXHAUSTED:
                    tally.shed += 1
                    if counts:
                        tally.shed_s.append(now - exchange.sent)
                continue
            rows = self._rows[exchange.prepared]
            version, wrong = self._checker.check(exchange, rows)
            if wrong:
                tally.failed += 1
                tally.failures[wrong] += counts
                continue
            tally.ok += 1
            tally.rows += rows
            if counts:
                tally.counted_ok += 1
                tally.counted_rows += rows
                tally.answer_bytes += sum(map(len, exchange.body))
                tally.latency_s.append(now - exchange.due)
                tally.service_s.append(now - exchange.sent)
                if version:
                    tally.versions[version] += 1

    def _interval(self, now: float) -> int:
        """Number of the current interval. Responses after the end get a separate one, even if the end is within an
        interval."""
        at, length_s = now - self._counted_from, self._plan.interval_s
        interval = math.floor(at / length_s)
        return interval if at < self._plan.measured_s else max(interval, math.ceil(self._plan.measured_s / length_s))

    def _housekeep(self, now: float) -> float:
        """Do the periodic work; returns the time of the next call."""
        self._finish(self._pool.housekeep(now, self._plan.deadline_s))
        interval = self._interval(now)
        if interval != self._tally.interval:
            self._flush(interval)
        return min(now + _HOUSEKEEPING_S, self._counted_from + (interval + 1) * self._plan.interval_s)

    def _flush(self, next_interval: int) -> None:
        self._tally.checked, self._checker.checked = self._checker.checked, 0
        self._pipe.send(self._tally)
        self._tally = Tally(next_interval)


def _part(total: int, processes: int, share: int) -> int:
    """An equal share of `total`; the first processes get the remainder."""
    return total // processes + (share < total % processes)
