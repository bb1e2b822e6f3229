"""How many rows each identity has run and is running, over all workers of a server.

Each worker writes its own counts into a small file that the others have mapped, and reads theirs: no lock is shared and
nothing is asked. Two workers that look at the same moment may both let a request pass, so a limit can be exceeded by
one request per worker for as long as those run.
"""

import hashlib
import math
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from serving.security.identities import Identity

_ALL, _RUNNING = 0, 1
_BYTES = 16
# How much an identity may run at once after it has been idle.
_BURST_S = 1.0


class RowMeter:
    """Of one identity. `counts` are this worker's rows in all and those running now; `others` gives those of its peers.

    The rate is a bucket that all workers draw from: a request may begin while anything is left in it, and what it takes
    too much is owed.
    """

    def __init__(self, counts: "memoryview[int]", clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = counts
        self._clock = clock
        self._lock = threading.Lock()
        self._others: list[memoryview[int]] = []
        self._others_all = 0
        self._left: float | None = None
        self._filled = clock()

    def share(self, others: "list[memoryview[int]]") -> None:
        """The counts of the other workers, from now on."""
        with self._lock:
            known = {id(each) for each in self._others}
            # What a worker counted before it was known here is history.
            self._others_all += sum(each[_ALL] for each in others if id(each) not in known)
            self._others_all -= sum(each[_ALL] for each in self._others if id(each) not in {id(one) for one in others})
            self._others = others

    def wait_s(self, identity: Identity) -> float:
        """Until a request may begin by the rate; 0: now."""
        with self._lock:
            left = self._fill(identity.rows_per_s)
            return 0.0 if left > 0 else (1.0 - left) / identity.rows_per_s

    def has_room(self, identity: Identity, rows: int) -> bool:
        running = self._counts[_RUNNING]
        for each in self._others:
            running += each[_RUNNING]
        return running + rows <= identity.concurrent_rows

    def begin(self, rows: int) -> None:
        with self._lock:
            self._begin(rows)

    def begin_within(self, identity: Identity, rows: int) -> bool:
        """Like `begin`, if there is room; returns whether there was. One step, because several threads begin."""
        with self._lock:
            if identity.concurrent_rows != math.inf and not self.has_room(identity, rows):
                return False
            self._begin(rows)
            return True

    def _begin(self, rows: int) -> None:
        self._counts[_ALL] += rows
        self._counts[_RUNNING] += rows
        if self._left is not None:
            self._left -= rows

    def end(self, rows: int) -> None:
        with self._lock:
            self._counts[_RUNNING] -= rows

    def _fill(self, rows_per_s: float) -> float:
        now, most = self._clock(), _BURST_S * rows_per_s
        others_all = 0
        for each in self._others:
            others_all += each[_ALL]
        if self._left is None:
            self._left = most
        self._left -= others_all - self._others_all
        self._left = min(most, self._left + (now - self._filled) * rows_per_s)
        self._others_all, self._filled = others_all, now
        return self._left


class RowMeters:
    """One per identity that has a limit. `directory` is what the workers share; None: there is one worker only."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._meters: dict[str, RowMeter] = {}
        self._peers: dict[Path, memoryview[int]] = {}
        self._lock = threading.Lock()
        if directory is not None:
            directory.mkdir(mode=0o700, exist_ok=True)

    def of(self, identity: Identity) -> RowMeter:
        meter = self._meters.get(identity.name)
        if meter is None:
            with self._lock:
                meter = self._meters.get(identity.name)
                if meter is None:
                    meter = RowMeter(self._own_counts(identity.name))
                    self._meters[identity.name] = meter
        return meter

    def find_peers(self) -> None:
        """Take notice of workers that came or went; call it now and then."""
        if self._directory is None:
            return
        found: dict[Path, memoryview[int]] = {}
        for path in self._directory.iterdir():
            pid = int(path.suffix[1:])
            if pid == os.getpid():
                continue
            if not Path(f"/proc/{pid}").exists():
                path.unlink(missing_ok=True)  # its rows are not running any more
                continue
            found[path] = self._peers.get(path) or _mapped(path)
        self._peers = found
        for name, meter in list(self._meters.items()):
            meter.share([counts for path, counts in found.items() if path.stem == _stem(name)])

    def _own_counts(self, name: str) -> "memoryview[int]":
        if self._directory is None:
            return memoryview(bytearray(_BYTES)).cast("q")
        return _mapped(self._directory / f"{_stem(name)}.{os.getpid()}")


def _stem(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _mapped(path: Path) -> "memoryview[int]":
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, _BYTES)
        return memoryview(mmap.mmap(descriptor, _BYTES)).cast("q")
    finally:
        os.close(descriptor)
