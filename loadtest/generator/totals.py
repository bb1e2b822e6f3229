"""Adds up the tallies of all processes to a result, at the end or while the load runs."""

import math
from collections import Counter

import grpc
import numpy as np

from loadtest.generator.latencies import MICROSECONDS, Latencies, Microseconds
from loadtest.generator.plan import LoadPlan
from loadtest.generator.result import Interval, LoadResult
from loadtest.generator.tally import Tally

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


class LoadTotals:
    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._tallies: dict[int, list[Tally]] = {}
        self._intervals: dict[int, Interval] = {}
        self._codes, self._versions, self._failures = Counter[int](), Counter[int](), Counter[str]()
        self._latency, self._service, self._shed, self._late = (Latencies() for _ in range(4))
        self._sent = self._ok = self._rows = self._answer_bytes = self._checked = 0

    def add(self, tally: Tally) -> None:
        """Add a tally. Each process sends one per interval; those of the warm-up only show that it is running."""
        self._latency.record(_micros(tally.latency_s))
        self._service.record(_micros(tally.service_s))
        self._shed.record(_micros(tally.shed_s))
        self._late.record(_micros(tally.late_s))
        self._codes.update(tally.codes)
        self._versions.update(tally.versions)
        self._failures.update(tally.failures)
        self._sent += tally.sent
        self._ok += tally.counted_ok
        self._rows += tally.counted_rows
        self._answer_bytes += tally.answer_bytes
        self._checked += tally.checked
        if tally.interval < 0:
            return
        parts = self._tallies.setdefault(tally.interval, [])
        parts.append(tally)
        self._intervals[tally.interval] = self._summary(tally.interval, parts)
        if len(parts) >= self._plan.processes:
            # Keep only the summary: hours of raw latencies would not fit into memory.
            del self._tallies[tally.interval]

    def _summary(self, interval: int, parts: list[Tally]) -> Interval:
        latency_s = np.concatenate([np.asarray(part.latency_s) for part in parts])
        p50, p99, worst = np.percentile(latency_s, (50, 99, 100)).tolist() if latency_s.size else (math.nan,) * 3
        return Interval(
            start_s=interval * self._plan.interval_s,
            length_s=self._plan.interval_s,
            due=sum(part.due for part in parts),
            ok=sum(part.ok for part in parts),
            shed=sum(part.shed for part in parts),
            failed=sum(part.failed for part in parts),
            rows=sum(part.rows for part in parts),
            p50_s=p50,
            p99_s=p99,
            worst_s=worst,
        )

    @property
    def last_interval(self) -> Interval | None:
        """The last interval that every process has reported."""
        whole = [index for index in self._intervals if index not in self._tallies]
        return self._intervals[max(whole)] if whole else None

    def result(self, elapsed_s: float, cpu_s: float = 0.0, interrupted: bool = False) -> LoadResult:
        """The result so far, `elapsed_s` seconds after the warm-up."""
        timeline = [self._intervals[index] for index in sorted(self._intervals)]
        in_time = [interval for interval in timeline if interval.start_s < elapsed_s]
        return LoadResult(
            plan=self._plan,
            elapsed_s=elapsed_s,
            sent=self._sent,
            ok=self._ok,
            rows=self._rows,
            ok_in_time=sum(interval.ok for interval in in_time),
            rows_in_time=sum(interval.rows for interval in in_time),
            answer_bytes=self._answer_bytes,
            errors={_NAMES.get(code, str(code)): count for code, count in self._codes.items()},
            latency=self._latency,
            service_latency=self._service,
            shed_latency=self._shed,
            lateness=self._late,
            timeline=timeline,
            versions=dict(self._versions),
            checked=self._checked,
            check_failures=dict(+self._failures),
            generator_cpu_s=cpu_s,
            interrupted=interrupted,
        )


def _micros(seconds: "object") -> Microseconds:
    return np.rint(np.asarray(seconds, dtype=np.float64) * MICROSECONDS).astype(np.int64)
