"""Figures for the console from the metrics of all workers: rates between two samples, and totals since the start.

Samples are taken only while somebody views the console, because for each of them the process that owns the port has to
merge the values of all workers.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EVERY_S = 5.0
# After this time without a viewer, sampling stops.
_VIEWED_S = 120.0
# Samples are large, so only those of the last minutes are stored; for the last hour, only figures computed from them.
_SAMPLES = 61
_POINTS = 720

Values = Mapping[str, Any]
# Model and version; both are empty for all models together.
Key = tuple[str, str]
# Figures between two samples, by model and version.
Point = Mapping[Key, dict[str, Any]]


@dataclass(frozen=True)
class Sample:
    time: float
    values: Values

    def series(self, family: str, **labels: str) -> Iterator[tuple[dict[str, str], list[float]]]:
        """The series of a family that have these labels; an empty label matches every value."""
        found = self.values.get(f"ghostless_{family}")
        if found is None:
            return
        wanted = {name: value for name, value in labels.items() if value and name in found["labels"]}
        for values, numbers in found["series"]:
            named = dict(zip(found["labels"], values, strict=True))
            if all(named[name] == value for name, value in wanted.items()):
                yield named, [0.0 if number is None else number for number in numbers]

    def total(self, family: str, **labels: str) -> float:
        return sum(numbers[0] for _, numbers in self.series(family, **labels))

    def by(self, family: str, label: str, **labels: str) -> dict[str, float]:
        """Totals by the value of one label."""
        found: dict[str, float] = {}
        for named, numbers in self.series(family, **labels):
            found[named[label]] = found.get(named[label], 0.0) + numbers[0]
        return found

    def histogram(self, family: str, **labels: str) -> "Histogram":
        bounds = self.values.get(f"ghostless_{family}", {}).get("bounds", ())
        numbers = [0.0] * (len(bounds) + 2)
        for _, each in self.series(family, **labels):
            numbers = [one + other for one, other in zip(numbers, each, strict=True)]
        return Histogram(tuple(bounds), numbers[0], tuple(numbers[1:]))


@dataclass(frozen=True)
class Histogram:
    """Counts between bounds, the last one without an upper bound."""

    bounds: tuple[float, ...]
    sum: float
    counts: tuple[float, ...]

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count > 0 else None

    def since(self, before: "Histogram") -> "Histogram":
        if len(before.counts) != len(self.counts):
            return self
        counts = tuple(max(0.0, now - then) for now, then in zip(self.counts, before.counts, strict=True))
        return Histogram(self.bounds, self.sum - before.sum, counts)

    def quantile(self, level: float) -> float | None:
        """Linear inside a bucket, as Prometheus computes it."""
        wanted, below, low = level * self.count, 0.0, 0.0
        if wanted <= 0:
            return None
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and below + count >= wanted:
                return low + (bound - low) * (wanted - below) / count
            below, low = below + count, bound
        return low

    def share_above(self, bound: float) -> float | None:
        if not self.count:
            return None
        below = sum(count for limit, count in zip(self.bounds, self.counts, strict=False) if limit <= bound * 1.001)
        return 1 - below / self.count


@dataclass(frozen=True)
class View:
    """Samples of the last minutes, the last one current, and figures between samples of the last hour."""

    samples: Sequence[Sample]
    points: Sequence[Point]


class History:
    """`read` returns the merged values as JSON; `summarise(now, then)` computes a point."""

    def __init__(
        self,
        read: Callable[[], bytes],
        summarise: Callable[[Sample, Sample], Point],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._summarise = summarise
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._points: deque[Point] = deque(maxlen=_POINTS)
        self._viewed = 0.0
        self._thread: threading.Thread | None = None

    def view(self) -> View:
        with self._lock:
            self._viewed = self._clock()
            if not self._samples or self._viewed - self._samples[-1].time > EVERY_S / 2:
                self._add()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="figures", daemon=True)
                self._thread.start()
            return View(list(self._samples), list(self._points))

    def now(self) -> Sample:
        """A sample of the current values, which is not stored."""
        return self._sample()

    def _add(self) -> None:
        sample = self._sample()
        if self._samples:
            self._points.append(self._summarise(sample, self._samples[-1]))
        self._samples.append(sample)

    def _sample(self) -> Sample:
        return Sample(self._clock(), json.loads(self._read()))

    def _run(self) -> None:
        while True:
            time.sleep(EVERY_S)
            with self._lock:
                if self._clock() - self._viewed > _VIEWED_S:
                    self._thread = None
                    return
                if self._clock() - self._samples[-1].time >= EVERY_S * 0.9:
                    try:
                        self._add()
                    except OSError:  # the server is stopping
                        self._thread = None
                        return
