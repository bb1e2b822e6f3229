"""Counters, gauges and histograms whose values are in a ValueMemory.

Those of prometheus_client ask the system for the process id at each `inc` and accept one value at a time. Between two
runs of a graph, with none of that code in the processor's caches, one `inc` took 5 us of a request.
"""

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ghostless.contract.arrays import Array
from serving.telemetry.values import Family, ValueMemory

InstrumentT = TypeVar("InstrumentT", bound="Counter | Gauge | Histogram")


class Counter:
    __slots__ = ("_lock", "_value")

    def __init__(self, family: Family, memory: "memoryview[float]") -> None:
        self._value = memory
        self._lock = threading.Lock()

    def inc(self, amount: float = 1.0) -> None:
        with self._lock:
            self._value[0] += amount


class Gauge:
    __slots__ = ("_value",)

    def __init__(self, family: Family, memory: "memoryview[float]") -> None:
        self._value = memory

    def set(self, value: float) -> None:
        self._value[0] = value


class Histogram:
    """`bounds` are the upper bounds of the buckets; one more bucket has no upper bound."""

    __slots__ = ("_counts", "_lock", "_total", "bounds")

    def __init__(self, family: Family, memory: "memoryview[float]") -> None:
        values: npt.NDArray[np.float64] = np.asarray(memory)
        self._total, self._counts = values[:1], values[1:]
        self._lock = threading.Lock()
        self.bounds = np.array(family.bounds)

    def add(self, counts: Array, total: float) -> None:
        """Add the number of values in each bucket; the values sum to `total`."""
        with self._lock:
            self._counts += counts
            self._total += total

    def observe(self, values: Array | Sequence[float]) -> None:
        """Add any number of values, of any sign and size."""
        flat = np.asarray(values, dtype=np.float64).ravel()
        if flat.size:
            places = np.searchsorted(self.bounds, flat, side="left")
            self.add(np.bincount(places, minlength=len(self._counts)), float(flat.sum()))


class Labelled(Generic[InstrumentT]):
    """One instrument for each combination of label values."""

    def __init__(self, kind: type[InstrumentT], family: Family, memory: ValueMemory) -> None:
        memory.add_family(family)
        self._kind = kind
        self._family = family
        self._memory = memory
        self._made: dict[tuple[str, ...], InstrumentT] = {}
        self._lock = threading.Lock()

    def labels(self, *values: str) -> InstrumentT:
        """Counting from 0 if it is new."""
        made = self._made.get(values)
        return self._make(values) if made is None else made

    def _make(self, values: tuple[str, ...]) -> InstrumentT:
        if len(values) != len(self._family.labels):
            raise ValueError(f"{self._family.name} has the labels {self._family.labels}, got {values}")
        with self._lock:
            if values not in self._made:
                self._made[values] = self._kind(self._family, self._memory.add_series(self._family, values))
            return self._made[values]
