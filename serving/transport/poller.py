"""Polls sockets and runs the engine's work in between, on the same threads.

The thread that reads a request also runs it, so no other thread has to be woken. Between runs it reads everything that
has arrived: this is how batches form, and how requests are rejected within one or two runs when the queue is full.

There are as many threads as slots. One polls at a time; before it runs something, it hands the polling over to an idle
thread. If all threads have been running for long, an additional one polls until one is free.
"""

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_log = logging.getLogger(__name__)

# Minimum interval between polls while something waits to be run: reading more at a time costs less, and new requests
# have to wait or be rejected in any case.
_BETWEEN_POLLS_S = 0.002
# How long all threads may run something before the additional thread polls, so that calls are still accepted or
# rejected.
_RELIEF_S = 0.01
# Interval at which the additional thread checks this while nothing runs.
_DOZE_S = 0.05
_IDLE_S = 0.5
# A run that hangs must not keep the process alive.
_STOP_S = 10.0
_EVENTS = 256
# How long sockets that need several turns are served before the others are polled again.
_LINE_S = 0.001

# Called with the events of a socket, as in select.epoll.
OnReady = Callable[[int], None]
# Runs queued work, and returns the seconds until there is more to do; None if there is nothing more.
RunQueued = Callable[[], float | None]


class Poller:
    def __init__(self, run_queued: RunQueued, threads: int) -> None:
        self._run_queued = run_queued
        self._epoll = select.epoll()
        self._ready: dict[int, OnReady] = {}
        # Sockets with more to do than a turn allows, in order, with their further events.
        self._again: dict[int, int] = {}
        # Called after each poll, with the time.
        self.on_polled: Callable[[float], None] = lambda now: None
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.add(self._waker, self._woken)
        self._polling = threading.Lock()
        self._turn = threading.Semaphore(0)
        self._idle = 0
        # Time of the last poll.
        self._polled = 0.0
        # Since when each thread is running something; None while it polls or waits.
        self._busy_since: list[float | None] = [None] * threads
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=(place,), name=f"poller-{place}", daemon=True)
            for place in range(threads)
        ]
        self._threads.append(threading.Thread(target=self._relieve, name="poller-relief", daemon=True))

    def add(self, fd: int, on_ready: OnReady, events: int = select.EPOLLIN) -> None:
        self._ready[fd] = on_ready
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Set the events of a socket to wait for; does nothing if it was removed meanwhile."""
        if fd in self._ready:
            with suppress(FileNotFoundError, ValueError):
                self._epoll.modify(fd, events)

    def give_turn(self, fd: int) -> None:
        """Call `on_ready` again, without events, after all other sockets had their turn. For the polling thread."""
        self._again[fd] = 0

    def remove(self, fd: int) -> None:
        """Stop polling a socket; call this before it is closed."""
        self._again.pop(fd, None)
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._wake()
        for _ in self._threads:
            self._turn.release()
        for thread in self._threads:
            thread.join(_STOP_S)
        if any(thread.is_alive() for thread in self._threads):
            _log.error("an inference did not finish within %g s and was abandoned", _STOP_S)
            return
        self._epoll.close()
        os.close(self._waker)

    def _serve(self, place: int) -> None:
        due: float | None = None
        while not self._stopped.is_set():
            if due == 0 and time.monotonic() < self._polled + _BETWEEN_POLLS_S:
                pass  # run queued work first
            elif self._polling.acquire(blocking=False):
                try:
                    self._poll(_IDLE_S if due is None else due)
                finally:
                    self._polling.release()
            elif due != 0:
                self._wait_for_turn(due)
            self._busy_since[place] = time.monotonic()
            due = self._run()
            self._busy_since[place] = None

    def _run(self) -> float | None:
        if self._idle:
            self._turn.release()
        try:
            return self._run_queued()
        except Exception:
            _log.exception("running queued requests failed")
            return None

    def _wait_for_turn(self, due: float | None) -> None:
        """Wait while another thread polls; it hands over before it runs something."""
        self._idle += 1
        if self._all_relieved():
            self._wake()
        # The polling thread may have just finished without finding a thread to hand over to.
        if self._polling.locked():
            self._turn.acquire(timeout=_IDLE_S if due is None else due)
        self._idle -= 1

    def _poll(self, timeout_s: float) -> None:
        line, self._again = self._again, {}
        ready = self._epoll.poll(0 if line else timeout_s, _EVENTS)
        self._polled = time.monotonic()
        for fd, events in ready:
            if fd in line:
                line[fd] = events
            else:
                self._call(fd, events)
        if line:
            self._serve_line(line)
        try:
            self.on_polled(self._polled)
        except Exception:
            _log.exception("checking connections failed")

    def _serve_line(self, line: dict[int, int]) -> None:
        """Serve sockets that need another turn, for a short time, because others may have become ready meanwhile."""
        until = time.monotonic() + _LINE_S
        while line and time.monotonic() < until:
            fd = next(iter(line))
            self._call(fd, line.pop(fd))
        self._again = line | self._again

    def _call(self, fd: int, events: int) -> None:
        on_ready = self._ready.get(fd)
        if on_ready is None:
            return
        try:
            on_ready(events)
        except Exception:
            _log.exception("reading a socket failed")

    def _relieve(self) -> None:
        """The additional thread: polls while all other threads have been running something for long."""
        while not self._stopped.wait(_RELIEF_S if any(self._busy_since) else _DOZE_S):
            while self._all_busy() and not self._stopped.is_set():
                with self._polling:
                    self._poll(_RELIEF_S)
                if self._idle:
                    self._turn.release()

    def _all_busy(self) -> bool:
        long_ago = time.monotonic() - _RELIEF_S
        return all(since is not None and since < long_ago for since in self._busy_since)

    def _all_relieved(self) -> bool:
        """Whether all regular threads are idle, so that the polling thread must be the additional one."""
        return self._idle == len(self._busy_since)

    def _wake(self) -> None:
        os.eventfd_write(self._waker, 1)

    def _woken(self, events: int) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._waker)
