"""Creates all telemetry of a server from its settings."""

import platform
from collections.abc import Callable
from importlib import metadata as packages
from pathlib import Path

from ghostless.contract.errors import ConfigError
from serving.config import ServeConfig
from serving.engines.interface import Engine
from serving.outcomes.joining import OutcomeJoiner
from serving.outcomes.peers import LocalOutcomes, SharedOutcomes
from serving.outcomes.service import OutcomeService
from serving.outcomes.store import OutcomeStore
from serving.telemetry import tracing
from serving.telemetry.access_log import AccessLog
from serving.telemetry.gauges import Gauges
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.ranges import RangeObserver
from serving.telemetry.record import NOT_RECORDED, CallRecorder
from serving.telemetry.recorder import Recorder
from serving.telemetry.runtime import values_directory
from serving.telemetry.sinks import Sink
from serving.telemetry.values import ValueMemory


class Observability:
    """Telemetry of one worker process. If metrics, logs and traces are off, its recorder does nothing.

    `directory` is shared by the server's processes (runtime.py), None if metrics are off. `is_worker`: there are other
    workers, each with its own predictions.
    """

    def __init__(
        self, config: ServeConfig, engine: Engine, directory: Path | None = None, is_worker: bool = False
    ) -> None:
        values = values_directory(directory) if directory and config.metrics else None
        self.metrics = ServerMetrics(ValueMemory(values))
        self.recorder: CallRecorder = NOT_RECORDED
        self.outcomes: OutcomeService | None = None
        self._closing: list[Callable[[], None]] = []
        self._gauges: Gauges | None = None
        sinks = _logs(config, self.metrics)
        joiner: OutcomeJoiner | None = None
        if config.metrics and config.outcome_store_mb:
            store = OutcomeStore(int(config.outcome_store_mb * 1024 * 1024), config.outcome_age_s)
            joiner = OutcomeJoiner(store, self.metrics.outcomes, config.outcome_rate)
            sinks.append(joiner)
        if config.metrics and config.uncertainty_rate:
            sinks.append(RangeObserver(self.metrics.uncertainty))
        if not config.metrics and not sinks:
            return
        self._gauges = gauges = Gauges(engine, self.metrics.requests, self.metrics.models)
        self.metrics.models.workers_configured.set(config.worker_count)
        build = (packages.version("ghostless"), platform.python_version(), config.engine)
        self.metrics.models.build_info.labels(*build).set(1)
        self.recorder = Recorder(
            self.metrics,
            sinks,
            uncertainty_rate=config.uncertainty_rate,
            uncertainty_rows_per_s=config.uncertainty_rows_per_s,
            uncertainty_metrics=config.metrics and config.uncertainty_rate > 0,
            is_stored=joiner.is_stored if joiner is not None else _never,
            on_interval=gauges.update if config.metrics else _nothing,
        )
        if joiner is not None:
            self._share(joiner, self.recorder, directory if is_worker else None)

    def start(self) -> None:
        self.recorder.start()

    def drain(self) -> None:
        """The server takes no new calls soon: report it as not ready."""
        if self._gauges is not None:
            self._gauges.drain()

    def stop(self) -> None:
        """Call this after the last call has ended."""
        for close in self._closing:
            close()
        self.recorder.stop()

    def _share(self, joiner: OutcomeJoiner, recorder: CallRecorder, directory: Path | None) -> None:
        outcomes: LocalOutcomes | SharedOutcomes
        if directory is None:
            outcomes = LocalOutcomes(joiner, recorder.flush)
        else:
            outcomes = SharedOutcomes(joiner, directory, recorder.flush)
        self.outcomes = OutcomeService(outcomes, self.metrics.outcomes, joiner.is_stored)
        self._closing.append(outcomes.close)


def _logs(config: ServeConfig, metrics: ServerMetrics) -> list[Sink]:
    sinks: list[Sink] = []
    if config.access_log:
        sinks.append(AccessLog(config.access_log, config.access_log_rate, config.access_log_features, metrics.logs))
    if tracing.is_configured(config.otlp_endpoint):
        sinks.append(tracing.open_tracing(config.otlp_endpoint, config.trace_rate))
    if config.acquisition_log is not None:
        if not config.uncertainty_rate:
            raise ConfigError("--acquisition-log needs sampled responses; set --uncertainty-rate above 0")
        from serving.acquisition.files import FileLimits
        from serving.acquisition.log import AcquisitionLimits, AcquisitionLog

        limits = FileLimits(
            int(config.acquisition_file_mb * 1024 * 1024), config.acquisition_file_s, config.acquisition_files
        )
        rows = AcquisitionLimits(max(1, config.acquisition_rows_per_minute // config.worker_count))
        sinks.append(AcquisitionLog(config.acquisition_log, config.acquisition_gamma, rows, limits, metrics.logs))
    return sinks


def _never(request_id: str) -> bool:
    """Used if outcomes are off: no prediction is stored."""
    return False


def _nothing() -> None:
    """Used if metrics are off: there are no gauges to read."""
