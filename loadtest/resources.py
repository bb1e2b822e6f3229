"""CPU seconds and memory of whole process trees, and how to suspend them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time so far of these processes and all their living descendants."""
    total = 0.0
    for process in _trees(pids):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def memory_mb(pids: Sequence[int]) -> float:
    """Private memory of the processes plus, counted once, the memory that they share (libraries, pages from before a
    fork), whether or not other processes share it too."""
    own, shared = 0, 0
    for process in _trees(pids):
        with suppress(psutil.Error):
            memory = process.memory_full_info()
            own += memory.uss
            shared = max(shared, memory.rss - memory.uss)
    return (own + shared) / 1e6


@contextmanager
def suspended(pids: Sequence[int]) -> Iterator[None]:
    """Suspend the processes (SIGSTOP): even idle servers wake up regularly, and ten of them would disturb a
    measurement."""
    processes = list(_trees(pids))
    for process in processes:
        with suppress(psutil.Error):
            process.suspend()
    try:
        yield
    finally:
        # Resume parents last, so that they find their children running.
        for process in reversed(processes):
            with suppress(psutil.Error):
                process.resume()


def _trees(pids: Sequence[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            yield root
            yield from root.children(recursive=True)
