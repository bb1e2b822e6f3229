"""What a server's processes use: CPU seconds and memory of whole process trees, and no CPU at all when suspended."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time so far, of these processes and all below them that are alive."""
    total = 0.0
    for process in _trees(pids):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def memory_mb(pids: Sequence[int]) -> float:
    """What the processes hold each for itself, and once what they share (libraries, pages from before a fork), as if
    nobody else on the machine shared it too."""
    own, shared = 0, 0
    for process in _trees(pids):
        with suppress(psutil.Error):
            memory = process.memory_full_info()
            own += memory.uss
            shared = max(shared, memory.rss - memory.uss)
    return (own + shared) / 1e6


@contextmanager
def suspended(pids: Sequence[int]) -> Iterator[None]:
    """The processes stand still (SIGSTOP): even an idle server looks around now and then, and ten of them do often."""
    processes = list(_trees(pids))
    for process in processes:
        with suppress(psutil.Error):
            process.suspend()
    try:
        yield
    finally:
        # Parents last, so that they find their children as they left them.
        for process in reversed(processes):
            with suppress(psutil.Error):
                process.resume()


def _trees(pids: Sequence[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            yield root
            yield from root.children(recursive=True)
