"""Metric values of one process, in memory that the process which is scraped reads while they change.

A process has a file, or several where one is not enough, in the server's own folder. It is mapped into memory, so
counting is writing a number there, and what a killed process counted is not lost. A file holds

    8 bytes                     how many bytes of it are used
    records                     each: 4 bytes length of its text, 4 bytes number of values, text, values (float64)

A text is JSON, padded to 8 bytes: that of a family, or the family's name and the label values of one of its series.
Records are written once and never move; the length is written last, so a reader sees whole records only. The reader
may be a supervisor that forks workers at any time, so it is plain Python: numpy would start threads there.
"""

import json
import logging
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

_log = logging.getLogger(__name__)

Merge = Literal["sum", "max", "min"]

_SUFFIX = ".values"
_SEGMENT_BYTES = 1 << 20
_USED = struct.Struct("=Q")
_RECORD = struct.Struct("=II")


@dataclass(frozen=True)
class Family:
    """A metric as Prometheus sees it. A histogram's series consist of its sum and the count of every bucket, the last
    bucket being unbounded; any other series is one value. `merge` says how gauges of several processes become one."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    merge: Merge = "sum"

    @property
    def size(self) -> int:
        """Values of one of its series."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


@dataclass(frozen=True)
class Series:
    """One combination of a family's label values."""

    family: str
    labels: tuple[str, ...]


class ValueMemory:
    """Where one process keeps its values; without a `directory` nobody else can read them."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._segments: list[mmap.mmap] = []
        self._used = 0

    def add_family(self, family: Family) -> None:
        self._append(asdict(family), 0)

    def add_series(self, family: Family, labels: Sequence[str]) -> "memoryview[float]":
        """The values of a new series, all 0, as float64 that may be written to."""
        return self._append({"family": family.name, "labels": list(labels)}, family.size)

    def read(self) -> "ProcessValues":
        """As another process would read them."""
        process = ProcessValues()
        for segment in self._segments:
            process.add(segment)
        return process

    def _append(self, content: dict[str, Any], count: int) -> "memoryview[float]":
        text = json.dumps(content).encode()
        text += b" " * (-len(text) % 8)
        size = _RECORD.size + len(text) + 8 * count
        with self._lock:
            if not self._segments or self._used + size > len(self._segments[-1]):
                self._open(max(_SEGMENT_BYTES, _USED.size + size))
            segment, start = self._segments[-1], self._used
            values = start + _RECORD.size + len(text)
            _RECORD.pack_into(segment, start, len(text), count)
            segment[start + _RECORD.size : values] = text
            self._used = start + size
            _USED.pack_into(segment, 0, self._used)
        return memoryview(segment)[values : start + size].cast("d")

    def _open(self, size: int) -> None:
        segment = self._open_file(self._directory, size) if self._directory else None
        if segment is None:
            segment = mmap.mmap(-1, size)
            _USED.pack_into(segment, 0, _USED.size)
        self._segments.append(segment)
        self._used = _USED.size

    def _open_file(self, directory: Path, size: int) -> mmap.mmap | None:
        """None where the disk is full: then nobody else sees these values."""
        path = directory / f"{os.getpid()}-{len(self._segments)}{_SUFFIX}"
        # It gets its name when it can be read.
        unnamed = path.with_suffix(".new")
        try:
            with open(unnamed, "w+b") as file:
                # Not a hole: where the disk is full, a write to one would end the process (SIGBUS).
                os.posix_fallocate(file.fileno(), 0, size)
                segment = mmap.mmap(file.fileno(), size)
        except OSError as error:
            unnamed.unlink(missing_ok=True)
            _log.error("some metrics of this process are not exposed: can't write to %s: %s", directory, error.strerror)
            return None
        _USED.pack_into(segment, 0, _USED.size)
        unnamed.rename(path)
        return segment


class ProcessValues:
    """What one process counted and measured until now."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.series: dict[Series, list[float]] = {}

    def add(self, segment: mmap.mmap) -> None:
        (used,) = _USED.unpack_from(segment, 0)
        at = _USED.size
        while at < used:
            length, count = _RECORD.unpack_from(segment, at)
            at += _RECORD.size
            content = json.loads(segment[at : at + length])
            at += length
            if "kind" in content:
                lists: dict[str, Any] = {name: tuple(content.pop(name)) for name in ("labels", "bounds")}
                family = Family(**content, **lists)
                self.families[family.name] = family
            else:
                values = list(struct.unpack_from(f"={count}d", segment, at))
                self.series[Series(content["family"], tuple(content["labels"]))] = values
            at += 8 * count


def processes(directory: Path) -> Iterator[int]:
    """Ids of those that have values there."""
    yield from sorted({int(path.name.partition("-")[0]) for path in directory.glob(f"*{_SUFFIX}")})


def read_process(directory: Path, pid: int) -> ProcessValues:
    process = ProcessValues()
    for path in sorted(directory.glob(f"{pid}-*{_SUFFIX}"), key=_number):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as segment:
            process.add(segment)
    return process


def remove_process(directory: Path, pid: int) -> None:
    """After it ended."""
    for path in directory.glob(f"{pid}-*"):
        path.unlink()


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2])
