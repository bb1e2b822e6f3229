"""One process of the generator: sends what is due, takes what comes, counts."""

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
    """The part of process `share`, on `cores`."""

    plan: LoadPlan
    share: int
    prepared: PreparedLoad
    cores: frozenset[int]


def work(pipe: Pipe, assignment: Assignment) -> None:
    """The process: connect, say so, wait for the time to begin, load, tell an Ended or a Failed."""
    # Ctrl-C is the parent's to handle; it then asks for an end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, assignment.cores)
    try:
        worker = _Worker(pipe, assignment)
        pipe.send("ready")
        worker.run(begins=pipe.recv())
    except GeneratorError as error:
        pipe.send(Failed(str(error)))
    except (EOFError, BrokenPipeError):
        return  # nobody is interested any more


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
        # Processes begin at different requests, so that they don't ask the same at the same time.
        for _ in range(share * len(messages) // plan.processes):
            next(self._prepared)
        self._left = _part(plan.max_requests, plan.processes, share)
        self._counted_from = 0.0
        self._tally = Tally(0)

    def run(self, begins: float) -> None:
        self._counted_from = begins + self._plan.warm_up_s
        self._tally = Tally(self._interval(begins))
        # Nothing here makes reference cycles; a collection would only show up as latency.
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
        """Send at the scheduled times; when that ended."""
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
        """Keep so many under way; when that ended."""
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
        """Until all is answered or over its deadline; nothing new is sent."""
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
        """What comes after the end is told apart, also where the end lies within an interval."""
        at, length_s = now - self._counted_from, self._plan.interval_s
        interval = math.floor(at / length_s)
        return interval if at < self._plan.measured_s else max(interval, math.ceil(self._plan.measured_s / length_s))

    def _housekeep(self, now: float) -> float:
        """When to come again."""
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
    """An even share of `total`; the first processes take what is left over."""
    return total // processes + (share < total % processes)
