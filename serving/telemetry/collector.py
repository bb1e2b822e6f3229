"""Collectors for prometheus_client: the values of one process, or the merged values of all processes of a server."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from serving.telemetry.values import (
    Family,
    Merge,
    ProcessValues,
    Series,
    ValueMemory,
    processes,
    read_process,
    remove_process,
)


def _choose(best: Callable[[float, float], float]) -> Callable[[float, float], float]:
    """A function that returns the better of two values; NaN is ignored if the other is a number."""
    return lambda one, other: other if math.isnan(one) else one if math.isnan(other) else best(one, other)


_MERGES: dict[Merge, Callable[[float, float], float]] = {"sum": add, "max": _choose(max), "min": _choose(min)}


class OwnValues(Collector):
    """The values of this process."""

    def __init__(self, memory: ValueMemory) -> None:
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        return expose(self._memory.read())


class MergedValues(Collector):
    """The values of all processes in `directory`, and the counts of processes that have ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ended = ProcessValues()

    def collect(self) -> Iterator[Metric]:
        return expose(self.merged())

    def merged(self) -> ProcessValues:
        living = [read_process(self._directory, pid) for pid in processes(self._directory)]
        return merge([self._ended, *living])

    def total(self, family: str) -> float:
        """Sum of a gauge or counter over all processes and labels."""
        processes_now = [read_process(self._directory, pid) for pid in processes(self._directory)]
        return sum(
            values[0] for each in processes_now for series, values in each.series.items() if series.family == family
        )

    def remove_process(self, pid: int) -> None:
        """Keep the counts of a process that has ended, and drop its gauges."""
        ended = read_process(self._directory, pid)
        kept = ProcessValues()
        kept.families = {name: family for name, family in ended.families.items() if family.kind != "gauge"}
        kept.series = {series: values for series, values in ended.series.items() if series.family in kept.families}
        self._ended = merge([self._ended, kept])
        remove_process(self._directory, pid)


def merge(parts: Iterable[ProcessValues]) -> ProcessValues:
    merged = ProcessValues()
    for part in parts:
        merged.families |= part.families
        for series, values in part.series.items():
            before = merged.series.get(series)
            combine = _MERGES[part.families[series.family].merge]
            merged.series[series] = values if before is None else list(map(combine, before, values))
    return merged


def as_json(process: ProcessValues) -> bytes:
    """Kind, label names, bounds and series of each family; NaN is null. A series of a histogram is its sum and the
    count of every bucket."""
    families: dict[str, dict[str, Any]] = {
        name: {"kind": family.kind, "labels": family.labels, "bounds": family.bounds, "series": []}
        for name, family in process.families.items()
    }
    for series, values in process.series.items():
        shown = [value if math.isfinite(value) else None for value in values]
        families[series.family]["series"].append([series.labels, shown])
    return json.dumps(families, separators=(",", ":")).encode()


def expose(process: ProcessValues) -> Iterator[Metric]:
    by_family: dict[str, list[tuple[Series, list[float]]]] = {name: [] for name in process.families}
    for series, values in process.series.items():
        by_family[series.family].append((series, values))
    for name, found in by_family.items():
        yield _exposed(process.families[name], found)


def _exposed(family: Family, found: list[tuple[Series, list[float]]]) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.meaning, labels=family.labels)
        names = [*map(floatToGoString, family.bounds), "+Inf"]
        for series, values in found:
            total, *counts = values
            histogram.add_metric(series.labels, list(zip(names, accumulate(counts), strict=True)), total)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    single = kind(family.name, family.meaning, labels=family.labels)
    for series, values in found:
        single.add_metric(series.labels, values[0])
    return single
