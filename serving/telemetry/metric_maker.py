"""Creates metrics with the common namespace, HELP texts and latency buckets, in one memory for their values."""

from serving.telemetry.help_texts import HELP, NAMESPACE
from serving.telemetry.instruments import Counter, Gauge, Histogram, Labelled
from serving.telemetry.values import Family, Merge, ValueMemory

SECONDS = (
    *(5e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 4e-4, 5e-4, 7.5e-4),
    *(1e-3, 1.5e-3, 2e-3, 3e-3, 4e-3, 5e-3, 7.5e-3),
    *(0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)


class MetricMaker:
    """Metrics of this namespace in one memory."""

    def __init__(self, memory: ValueMemory) -> None:
        self._memory = memory

    def counter(self, name: str, labels: tuple[str, ...], known: tuple[str, ...] = ()) -> Labelled[Counter]:
        """`known` are the values of its only label: they count from 0, so that a rate sees the first increment."""
        counter = Labelled(Counter, Family(f"{NAMESPACE}_{name}", "counter", HELP[name], labels), self._memory)
        for value in known:
            counter.labels(value)
        return counter

    def gauge(self, name: str, labels: tuple[str, ...], merge: Merge) -> Labelled[Gauge]:
        return Labelled(Gauge, Family(f"{NAMESPACE}_{name}", "gauge", HELP[name], labels, merge=merge), self._memory)

    def seconds(self, name: str, labels: tuple[str, ...]) -> Labelled[Histogram]:
        return self.histogram(name, labels, SECONDS)

    def histogram(self, name: str, labels: tuple[str, ...], bounds: tuple[float, ...]) -> Labelled[Histogram]:
        return Labelled(Histogram, Family(f"{NAMESPACE}_{name}", "histogram", HELP[name], labels, bounds), self._memory)
