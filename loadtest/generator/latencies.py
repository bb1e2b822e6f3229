"""Latencies in a mergeable HdrHistogram: three significant digits, from a microsecond to two minutes."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

MICROSECONDS = 1_000_000
_LOWEST_US = 1
_HIGHEST_US = 120 * MICROSECONDS
_DIGITS = 3
# Percentiles shown in tables.
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 100.0)

Microseconds = npt.NDArray[np.int64]


class Latencies:
    def __init__(self) -> None:
        self._histogram = HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS)

    def record(self, latencies_us: Microseconds) -> None:
        """Add latencies [n]; those outside the range are clipped to it."""
        values, counts = np.unique(np.clip(latencies_us, _LOWEST_US, _HIGHEST_US), return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._histogram.record_value(value, count)

    def merge(self, others: Iterable["Latencies"]) -> None:
        for other in others:
            self._histogram.add(other._histogram)

    @property
    def count(self) -> int:
        return int(self._histogram.get_total_count())

    def percentile_s(self, percentile: float) -> float:
        """The given percentile; NaN without data."""
        if not self.count:
            return float("nan")
        return float(self._histogram.get_value_at_percentile(percentile)) / MICROSECONDS

    def mean_s(self) -> float:
        return float(self._histogram.get_mean_value()) / MICROSECONDS if self.count else float("nan")

    def within(self, limit_s: float) -> float:
        """The share of latencies up to `limit_s`, within the histogram's resolution; NaN without data."""
        if not self.count:
            return float("nan")
        total = sum(
            item.count_added_in_this_iter_step
            for item in self._histogram.get_recorded_iterator()
            if item.value_iterated_to <= limit_s * MICROSECONDS
        )
        return float(total) / self.count

    def encode(self) -> str:
        """HdrHistogram's compressed format, readable by its tools in every language."""
        return str(self._histogram.encode().decode())

    @classmethod
    def decode(cls, text: str) -> "Latencies":
        decoded = cls()
        decoded._histogram.decode_and_add(text.encode())
        return decoded

    def __reduce__(self) -> tuple[object, ...]:
        return (Latencies.decode, (self.encode(),))

    def as_json(self) -> dict[str, float | str]:
        """Percentiles in ms by name, the mean, and the whole histogram."""
        named: dict[str, float | str] = {f"p{p:g}_ms": 1000 * self.percentile_s(p) for p in PERCENTILES}
        return {**named, "mean_ms": 1000 * self.mean_s(), "count": self.count, "hdr_histogram": self.encode()}
