"""Gauges read from the process and the engine: queue, memory, models and Triton endpoints."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ghostless.contract.errors import RequestError
from serving.engines.interface import EndpointState, Engine, ModelStatus, VersionState
from serving.telemetry.metrics import ModelMetrics, RequestMetrics, labels_of

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MEMORY = Path("/proc/self/statm")


class Gauges:
    """The gauges of one process; `update` reads them all."""

    def __init__(self, engine: Engine, requests: RequestMetrics, models: ModelMetrics) -> None:
        self._engine = engine
        self._requests = requests
        self._models = models
        self._memory = requests.resident_bytes.labels(str(os.getpid()))
        self._reported: set[tuple[str, ...]] = set()
        self._verdicts: set[tuple[str, ...]] = set()
        self._names: set[str] = set()
        self._failed: set[tuple[str, str]] = set()
        self._retries: dict[str, int] = {}
        self._is_draining = False
        models.workers.set(1)

    def drain(self) -> None:
        """Not ready any more, whatever the engine says."""
        self._is_draining = True
        self._models.ready.set(0)

    def update(self) -> None:
        statistics = self._engine.statistics()
        self._requests.queue_rows.set(statistics.queued_rows)
        self._memory.set(resident_bytes())
        self._models.ready.set(int(self._engine.is_ready() and not self._is_draining))
        self._update_models()
        self._update_versions(self._engine.models())
        for loaded in statistics.loaded:
            labels = labels_of(loaded.model)
            self._models.load_seconds.labels(*labels).set(loaded.load_s)
            self._models.warm_up_seconds.labels(*labels).set(loaded.warm_up_s)
        self._update_endpoints(statistics.endpoints)

    def _update_models(self) -> None:
        now: set[tuple[str, ...]] = set()
        verdicts: set[tuple[str, ...]] = set()
        for status in self._engine.models():
            for version in status.versions:
                if version.state is not VersionState.READY:
                    continue
                try:
                    model = self._engine.resolve(status.name, version.version)
                except RequestError:  # unloaded meanwhile
                    continue
                labels = labels_of(model)
                now.add((*labels, model.metadata.method, str(version.in_service).lower()))
                verdicts.add((*labels, model.metadata.pair_verdict))
        # A series in shared memory can't be removed, only set to 0.
        for labelled in self._reported | now:
            self._models.info.labels(*labelled).set(int(labelled in now))
        for labelled in self._verdicts | verdicts:
            self._models.pair_verdict.labels(*labelled).set(int(labelled in verdicts))
        self._reported |= now
        self._verdicts |= verdicts

    def _update_versions(self, statuses: Sequence[ModelStatus]) -> None:
        """Update the wanted, served and failed versions."""
        for status in statuses:
            if status.wanted:
                self._models.wanted_version.labels(status.name).set(status.wanted)
            self._models.served_version.labels(status.name).set(status.serving.version if status.serving else 0)
        names = {status.name for status in statuses}
        for name in self._names - names:
            # A series in shared memory can't be removed, and 0 would mean a model without a version.
            self._models.wanted_version.labels(name).set(math.nan)
            self._models.served_version.labels(name).set(math.nan)
        self._names |= names
        failed = {
            (status.name, str(version.version))
            for status in statuses
            for version in status.versions
            if version.state is VersionState.FAILED
        }
        for labels in self._failed | failed:
            self._models.version_failed.labels(*labels).set(int(labels in failed))
        self._failed |= failed

    def _update_endpoints(self, states: Mapping[str, EndpointState]) -> None:
        for address, state in states.items():
            self._models.endpoint_up.labels(address).set(int(state.ready))
            self._models.breaker_state.labels(address).set(state.breaker)
            self._models.endpoint_retries.labels(address).inc(state.retries - self._retries.get(address, 0))
            self._retries[address] = state.retries
        for address in self._retries.keys() - states.keys():
            # The endpoint is gone. Its series can't be removed, and 0 would mean that it is down.
            self._models.endpoint_up.labels(address).set(math.nan)
            self._models.breaker_state.labels(address).set(math.nan)


def resident_bytes() -> int:
    """Resident memory of this process; 0 if the system does not report it."""
    try:
        return int(_MEMORY.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
