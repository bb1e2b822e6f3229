"""One thread polls at a time, somebody always does, and work never keeps the sockets waiting for long."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from serving.transport.poller import Poller, RunQueued
from tests.support.waiting import eventually


@contextmanager
def _polling(work: RunQueued, threads: int = 1) -> Iterator[tuple[Poller, socket.socket, list[bytes]]]:
    """A poller that reads one end of a pair into the list; the other end is to write into."""
    mine, its = socket.socketpair()
    came: list[bytes] = []
    poller = Poller(work, threads)
    poller.add(its.fileno(), lambda events: came.append(its.recv(100)))
    with mine, its:
        yield poller, mine, came
        poller.stop()


def test_sockets_are_read_while_every_thread_runs_something_long() -> None:
    gate, running = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        running.release()
        gate.wait(5)

    def has_come(size: int) -> bool:
        return len(b"".join(came)) == size

    with _polling(work, threads=2) as (poller, mine, came):
        poller.start()
        for message in (b"1", b"2"):
            mine.send(message)
            assert running.acquire(timeout=2)
        for number in range(5):
            mine.send(b"x")
            eventually(partial(has_come, number + 3), "read all the same", timeout_s=0.5)
        gate.set()


def test_a_thread_that_just_missed_the_hand_over_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It found somebody polling, who then finished and saw nobody idle: nobody would poll for half a second."""

    class Missed:
        """A lock that is seen taken once, and is free a moment later."""

        def __init__(self) -> None:
            self._lock = threading.Lock()
            self._misses = 1

        def acquire(self, blocking: bool = True) -> bool:
            if not blocking and self._misses:
                self._misses -= 1
                return False
            return self._lock.acquire(blocking)

        def release(self) -> None:
            self._lock.release()

        def locked(self) -> bool:
            return self._lock.locked()

    with _polling(lambda: None) as (poller, mine, came):
        monkeypatch.setattr(poller, "_polling", Missed())
        mine.send(b"now")
        started = time.monotonic()
        poller.start()
        eventually(lambda: came, "read")
        assert time.monotonic() - started < 0.25


def test_work_that_is_due_soon_is_done_soon() -> None:
    ran: list[float] = []

    def work() -> float | None:
        ran.append(time.monotonic())
        return 0.02 if len(ran) < 5 else None

    with _polling(work) as (poller, mine, _):
        poller.start()
        mine.send(b"begin")
        eventually(lambda: len(ran) >= 5, "five runs", timeout_s=0.4)


def test_a_reader_or_work_that_fails_does_not_end_the_polling() -> None:
    def work() -> None:
        raise ValueError("on purpose")

    with _polling(work) as (poller, mine, came):
        broken, its = socket.socketpair()

        def read(events: int) -> None:
            its.recv(10).decode("ascii")

        poller.add(its.fileno(), read)
        poller.start()
        broken.send(b"\xff")
        mine.send(b"good")
        eventually(lambda: came == [b"good"], "read")
        poller.remove(its.fileno())
        broken.close()
        its.close()


def test_it_stops_at_once_and_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with _polling(lambda: None, threads=3) as (poller, _, _):
            poller.start()
            started = time.monotonic()
        assert time.monotonic() - started < 0.4
    assert len(os.listdir("/proc/self/fd")) <= before
