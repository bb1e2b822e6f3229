"""A server whose traffic drifts away from the training data and returns, scraped by a real Prometheus with the rules of
deploy/prometheus."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.observability.prometheus import Labels, Prometheus, running_prometheus
from benchmarks.observability.traffic import DRIFTED, NEW_USERS, USUAL, Traffic, TrafficKind, TrafficTotals
from ghostless.contract.metadata import UNKNOWN_IDS, ModelMetadata
from loadtest.server_process import BenchError, free_port, running_server
from loadtest.workload import ServedModel

RULES = Path("deploy/prometheus/rules")
PHASES = (USUAL, NEW_USERS, DRIFTED, USUAL)


@dataclass(frozen=True)
class Phase:
    """A period with one kind of traffic: its time, the clients' totals, and the alerts whose expressions were true at
    its end."""

    kind: TrafficKind
    start: float
    end: float
    seen: TrafficTotals
    alerts: dict[str, list[Labels]]

    def features(self, alert: str) -> set[str]:
        """The features for which this alert's expression was true."""
        return {labels["feature"] for labels in self.alerts.get(alert, ())}


@dataclass(frozen=True)
class DriftScenario:
    """The whole scenario. Prometheus is still running and can be queried."""

    prometheus: Prometheus
    phases: list[Phase]

    @property
    def seen(self) -> TrafficTotals:
        total = TrafficTotals()
        for phase in self.phases:
            total.add(phase.seen)
        return total

    def of(self, kind: TrafficKind) -> Phase:
        """The first phase of this kind."""
        return next(phase for phase in self.phases if phase.kind == kind)

    def during(self, kind: TrafficKind, counter: str, over: str = "ghostless_uncertainty_rows_total") -> float:
        """Increase of one counter divided by that of another, during this kind of traffic."""
        phase = self.of(kind)
        parts = [_gain(self.prometheus, name, phase) for name in (counter, over)]
        return parts[0] / parts[1]


def threshold_of(model: ServedModel) -> float:
    """The logit variance above which a row is out of distribution. Raises BenchError if the file is too old to contain
    all that this bench needs."""
    described = ModelMetadata.parse(model.session.get_modelmeta().custom_metadata_map, str(model.path))
    offered = {output.name for output in model.session.get_outputs()}
    if described.out_of_distribution_over is None or UNKNOWN_IDS not in offered or not described.ranges:
        raise BenchError(
            f"{model.path} lacks the threshold for out-of-distribution rows, the output for unknown ids or the ranges "
            "of numbers; export the model again with `ghostless export`"
        )
    return described.out_of_distribution_over


@contextmanager
def drifting(
    repository: Path,
    model: ServedModel,
    phase_s: float,
    rules: Path = RULES,
    options: Sequence[str] = (),
    kinds: Sequence[TrafficKind] = PHASES,
) -> Iterator[DriftScenario]:
    """Run these kinds of traffic one after the other on a new server. Prometheus runs until the block ends."""
    threshold = threshold_of(model)
    port = free_port()
    # Sample every row, so that the values in Prometheus can be compared exactly with those of the clients.
    observed = ("--metrics-port", str(port), "--uncertainty-rows-per-s", "1e12")
    with (
        running_server(repository, *observed, *options) as server,
        running_prometheus([f"127.0.0.1:{port}"], rules) as prometheus,
    ):
        traffic = Traffic(server.address, model, threshold)
        # Rates need an earlier sample.
        prometheus.settle()
        phases = []
        for kind in kinds:
            start = time.time()
            seen = traffic.run(kind, phase_s)
            prometheus.settle()
            phases.append(Phase(kind, start, time.time(), seen, prometheus.alerts()))
        yield DriftScenario(prometheus, phases)


def _gain(prometheus: Prometheus, counter: str, phase: Phase) -> float:
    before = sum(sample.value for sample in prometheus.query(f"sum({counter})", phase.start))
    return prometheus.value(f"sum({counter})", phase.end) - before
