"""The access log: a line of JSON for a sample of the calls, and for every error.

Feature values may be personal data, so they are written only on request.
"""

import fcntl
import json
import os
import random
import stat
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ghostless.contract.arrays import Array
from ghostless.contract.errors import ConfigError
from serving.logs import worker_number
from serving.telemetry.background import BackgroundWriter
from serving.telemetry.metrics import LogMetrics
from serving.telemetry.record import CallRecord

STANDARD_OUTPUT = "-"
# Errors beyond this rate are only counted in the next line, so that many errors cannot fill the disk.
ERRORS_PER_SECOND = 100
_MAX_DETAILS = 300
# Maximum number of batches that wait for a slow disk or pipe.
_WAITING = 64
_CLOSE_S = 5.0


class AccessLog:
    """A sink; `path` is a file, which may be moved away at any time, or STANDARD_OUTPUT."""

    needs_metadata = False

    def __init__(self, path: str, rate: float, features: bool, metrics: LogMetrics) -> None:
        self._path = path
        self._metrics = metrics
        self._rate = rate
        self._features = features
        self._pid, self._worker = os.getpid(), worker_number()
        self._random = random.Random()
        self._second = 0
        self._errors = 0
        self._left_out = 0
        self._lock = threading.Lock()
        if path != STANDARD_OUTPUT:
            try:
                os.close(self._open())
            except OSError as error:
                raise ConfigError(f"access log {path} can't be written: {error.strerror}") from error
        self._writer: BackgroundWriter[list[bytes]] = BackgroundWriter(
            "access log", self._write, _WAITING, on_failure=metrics.write_failures.labels("access").inc
        )

    def needs_inputs(self, stored: bool, sampled: bool) -> bool:
        return self._features

    def needed_outputs(self, stored: bool, sampled: bool) -> frozenset[str]:
        return frozenset()

    def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
        # Inlined, because most records are not selected.
        rate, drawn = self._rate, self._random.random
        chosen = [record for record in records if (drawn() < rate if record.code == "OK" else self._is_written())]
        lines = [self._line(record, wall_offset) for record in chosen]
        if lines and not self._writer.offer(lines):
            self._drop(len(lines))

    def close(self) -> None:
        self._writer.close(_CLOSE_S)

    def _is_written(self) -> bool:
        """Whether an error is written, rather than only counted."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._errors = second, 0
        self._errors += 1
        if self._errors > ERRORS_PER_SECOND:
            self._drop(1)
            return False
        return True

    def _line(self, record: CallRecord, wall_offset: float) -> bytes:
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.received + wall_offset, UTC).isoformat(timespec="microseconds"),
            "method": record.method,
            "code": record.code,
            "request_id": record.request_id,
            "model": record.model.name if record.model else "",
            "version": record.model.version if record.model else 0,
            "rows": record.rows,
            "batch_rows": record.times.batch_rows,
            "seconds": _timings(record),
            "pid": self._pid,
            "worker": self._worker,
        }
        if record.identity:
            content["identity"] = record.identity
        if record.code != "OK":
            content["details"] = record.details[:_MAX_DETAILS]
        elif self._rate < 1:
            content["sampled"] = self._rate
        if self._features and record.model:
            roles = {feature.name: feature.role for feature in record.model.metadata.features}
            content["features"] = {name: _values(roles[name], column) for name, column in record.inputs.items()}
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"

    def _write(self, lines: list[bytes]) -> None:
        with self._lock:
            left_out, self._left_out = self._left_out, 0
        if left_out:
            lines = [lines[0][:-2] + b',"left_out":%d}\n' % left_out, *lines[1:]]
        written = 0
        try:
            if self._path == STANDARD_OUTPUT:
                sys.stdout.flush()
                # One line at a time: workers share a pipe, and only short writes to a pipe are atomic.
                for line in lines:
                    _write_all(sys.stdout.fileno(), line)
                    written += 1
                return
            # Reopened each time, so that the file can be rotated without a signal to the server.
            file = self._open()
            try:
                _append(file, b"".join(lines))
                written = len(lines)
            finally:
                os.close(file)
        finally:
            self._metrics.access_log_lines.labels("written").inc(written)
            self._drop(len(lines) - written)
            if not written:
                with self._lock:
                    self._left_out += left_out

    def _drop(self, lines: int) -> None:
        """Count dropped lines; the next line that is written contains their number."""
        with self._lock:
            self._left_out += lines
        self._metrics.access_log_lines.labels("dropped").inc(lines)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)


def _append(file: int, data: bytes) -> None:
    """Append all of `data` or nothing: on a full disk, half a line would also make the next one invalid."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        _write_all(file, data)
        return
    with suppress(OSError):  # not every file system has locks
        # Excludes other workers; closing the file releases the lock.
        fcntl.lockf(file, fcntl.LOCK_EX)
    size = os.fstat(file).st_size
    try:
        _write_all(file, data)
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, size)
        raise


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _timings(record: CallRecord) -> dict[str, float]:
    """Seconds of each step that the call reached."""
    times = record.times
    steps = {
        "total": (record.received, record.answered),
        "queue": (times.queued, times.gathered),
        "batch_wait": (times.gathered, times.started),
        "compute": (times.started, times.computed),
        "encode": (times.computed, record.answered),
    }
    return {name: round(end - start, 6) for name, (start, end) in steps.items() if start and end}


def _values(role: str, column: Array) -> Any:
    """A column's values; a single value for a context feature, which is the same in every row."""
    values = column[:1].tolist() if role == "context" else column.tolist()
    return values[0] if role == "context" else values
