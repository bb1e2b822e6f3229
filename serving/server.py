"""The server of one process: every service on one port, started, drained, stopped."""

import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2_grpc

from ghostless.contract.errors import RepositoryError
from ghostless.v1 import prediction_pb2 as pb
from ghostless.v1 import prediction_pb2_grpc
from serving.config import ServeConfig
from serving.dataplane import facade, open_inference
from serving.dataplane.pipeline import Pipeline, RequestLimits
from serving.dataplane.validation import PredictRequest
from serving.engines.batcher import BatchLimits
from serving.engines.embedded import EmbeddedEngine, warm_up_sizes
from serving.engines.interface import Engine
from serving.engines.trial import TrialBounds, Trials, memory_bound_bytes
from serving.engines.triton import TritonEngine
from serving.engines.triton.channels import triton_tls
from serving.example import example_call
from serving.heartbeat import Heartbeats, Pulse
from serving.outcomes.service import OutcomeService
from serving.reflection import add_reflection
from serving.stop_signal import StopSignal
from serving.telemetry.assemble import Observability
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.record import NOT_RECORDED
from serving.telemetry.runtime import workers_socket
from serving.transport.closings import NOT_OBSERVED
from serving.transport.handler_threads import HandlerThreads
from serving.transport.listening import BACKLOG, bound, bound_port
from serving.transport.router import Transport

if TYPE_CHECKING:
    from serving.security.assemble import Security

_log = logging.getLogger(__name__)

# For methods not served inline: health checks and watches, reflection, listing models.
_HANDLER_THREADS = 8
_HEALTH_EVERY_S = 0.25
# A request leaves no reference cycles behind, so the collector need not look often.
_GC_THRESHOLD = 20_000
_SERVICES = ("", facade.SERVICE, open_inference.SERVICE)


class _PredictionService(facade.PredictionService):
    """Reports the number of workers with the models, so that a client can open a connection for each."""

    def __init__(self, engine: Engine, workers: int, outcomes: OutcomeService | None) -> None:
        super().__init__(engine, outcomes)
        self._workers = workers

    def ListModels(  # noqa: N802  # gRPC's name
        self, request: pb.ListModelsRequest, context: grpc.ServicerContext
    ) -> pb.ListModelsResponse:
        response = super().ListModels(request, context)
        response.workers = self._workers
        return response


class Server:
    def __init__(
        self,
        config: ServeConfig,
        engine: Engine,
        handoff_channel: socket.socket | None = None,
        observability: Observability | None = None,
        directory: Path | None = None,
    ) -> None:
        """`handoff_channel`: where connections come from, accepted by the supervisor (ConnectionHandoff). `directory`:
        what the processes of one server share."""
        self._config = config
        self._engine = engine
        self._observability = observability
        recorder = observability.recorder if observability else NOT_RECORDED
        outcomes = observability.outcomes if observability else None
        self._stopping = threading.Event()
        self._ending = threading.Lock()
        self._handoff_channel = handoff_channel
        self._internal = str(workers_socket(directory)) if directory and config.has_http else ""
        self._security = _security(config, observability, directory if handoff_channel else None)
        self._transport = Transport(
            config.http2_limits(config.max_message_bytes, config.max_streams, config.worker_count),
            engine,
            config.serving_threads,
            recorder,
            connection_limits=config.connection_limits,
            observer=observability.metrics.connections.observer if observability else NOT_OBSERVED,
            tls=self._security.tls if self._security else None,
            gate=self._security.gate if self._security else None,
            internal=self._internal,
        )
        limits = RequestLimits(config.max_rows, config.max_levels, config.unknown_features == "refuse")
        pipeline = Pipeline(engine, limits, config.deadline_ms / 1000, recorder)
        self._transport.add_inline(facade.PREDICT, pipeline.door(PredictRequest))
        self._transport.add_inline(open_inference.MODEL_INFER, pipeline.door(open_inference.InferRequest))

        self._inference = open_inference.InferenceService(engine)
        self._health = health.HealthServicer(experimental_non_blocking=True)
        self._handler_threads = HandlerThreads(self._transport, config.max_message_bytes, _HANDLER_THREADS)
        registrar: Any = self._handler_threads  # as far as the generated functions need a grpc.Server
        prediction_pb2_grpc.add_PredictionServiceServicer_to_server(  # type: ignore[no-untyped-call]  # generated
            _PredictionService(engine, config.worker_count, outcomes), registrar
        )
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self._inference, registrar)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, registrar)
        add_reflection((*_SERVICES[1:], health.SERVICE_NAME), registrar)
        self._set_health(False)
        self._watcher = threading.Thread(target=self._watch_engine, name="health", daemon=True)

    def start(self) -> int:
        """Serve; returns the port, 0 of a Unix socket. The engine has its models by now."""
        port = self._config.port
        if self._handoff_channel is None:
            port = self._listen(self._config.host, port)
            if self._internal:
                self._listen(f"unix:{self._internal}", 0)
        else:
            self._transport.take_from(self._handoff_channel)
        if self._observability is not None:
            self._observability.start()
        self._transport.start()
        if self._security is not None:
            self._security.start(self._transport)
        self._set_health(self._engine.is_ready())
        self._watcher.start()
        return port

    def _listen(self, host: str, port: int) -> int:
        listener = bound(host, port)
        listener.listen(BACKLOG)
        self._transport.listen(listener)
        return bound_port(listener)

    def show_life(self, give: Callable[[bool], None]) -> None:
        """Have `give(whether a request has run)` called several times a second by the thread that polls sockets."""
        pulse = Pulse(give, lambda: self._engine.statistics().has_run)
        self._transport.watch(pulse.descriptor, pulse.on_asked)
        pulse.start()

    def stop(self) -> None:
        """Readiness off, time for balancers to notice, no new calls, running ones finish."""
        with self._ending:
            if not self._stopping.is_set():
                self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        self._inference.drain()
        self._health.enter_graceful_shutdown()
        if self._observability is not None:
            self._observability.drain()
        time.sleep(self._config.drain_delay_s)
        self._handler_threads.stop()
        finished = self._transport.stop(self._config.drain_s)
        self._watcher.join()
        if self._security is not None:
            self._security.stop()
        if self._observability is not None:
            self._observability.stop()
        _log.info("drained" if finished else "stopped with unfinished calls")

    def _watch_engine(self) -> None:
        # Compared with what was set last: an engine that became ready before this thread started would else be
        # reported as not ready for ever.
        while not self._stopping.wait(_HEALTH_EVERY_S):
            ready = self._engine.is_ready()
            if ready != self._reported_ready:
                self._set_health(ready)

    def _set_health(self, ready: bool) -> None:
        self._reported_ready = ready
        states = health_pb2.HealthCheckResponse
        for name in _SERVICES:
            self._health.set(name, states.SERVING if ready else states.NOT_SERVING)


def _security(config: ServeConfig, observability: Observability | None, directory: Path | None) -> "Security | None":
    """None where there is neither TLS nor anybody who may not call: requests then pay nothing for it."""
    if config.tls_paths is None and config.identities is None:
        return None
    from serving.security.assemble import Security

    metrics = observability.metrics if observability is not None else ServerMetrics()
    return Security(config, metrics.security, directory)


def embedded_engine(config: ServeConfig, directory: Path | None = None) -> EmbeddedEngine:
    """Started, with a version of every model in service; RepositoryError if there is none. With a `directory`, which
    the processes of one server share, each version is loaded in a child first."""
    bounds = TrialBounds(memory_bound_bytes(config.max_model_mb))
    sizes = warm_up_sizes(config.max_batch_rows)
    engine = EmbeddedEngine(
        config.repository,
        BatchLimits(
            slots=config.slots_per_worker,
            max_batch_rows=config.max_batch_rows,
            queue_rows=config.queue_rows,
            window_s=config.batch_window_ms / 1000,
        ),
        providers=config.providers,
        trials=Trials(directory, bounds, sizes, config.providers) if directory else None,
        poll_s=config.poll_s,
        keep_versions=config.keep_versions,
        default_model=config.default_model,
    )
    engine.start()
    if not engine.is_ready():
        reasons = [
            f"{status.name} version {version.version}: {version.message}"
            for status in engine.models()
            for version in status.versions
            if status.serving is None
        ]
        engine.stop()
        wanted = f"no model {config.default_model!r}" if config.default_model else "no model"
        raise RepositoryError(
            f"{config.repository} has {wanted} that can be served: "
            + ("; ".join(reasons) or "export one with `ghostless export`")
        )
    return engine


def triton_engine(config: ServeConfig) -> TritonEngine:
    """Started; the Tritons may still be starting, and may come and go."""
    root = config.repository if config.repository.is_dir() else None
    engine = TritonEngine(
        config.triton_addresses,
        queue_rows=config.queue_rows,
        poll_s=config.poll_s,
        default_model=config.default_model,
        root=root,
        tls=triton_tls(
            config.triton_addresses,
            config.triton_ca,
            config.triton_cert,
            config.triton_key,
            config.triton_server_name,
        ),
    )
    engine.start()
    return engine


def run_server(
    config: ServeConfig,
    on_ready: Callable[[int, str], None],
    handoff_channel: socket.socket | None = None,
    parent: int = 0,
    wrap: Callable[[Engine], Engine] = lambda engine: engine,
    directory: Path | None = None,
    heartbeats: Heartbeats | None = None,
    worker: int = 0,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain. With `parent`, also until that process is gone.

    `on_ready` is called with the port and a call that works when pasted. `wrap` puts an engine of its own before
    the configured one. `directory` is what the processes of one server share, and so are `heartbeats`, in which this
    one is `worker`.
    """
    stop = StopSignal()
    engine = triton_engine(config) if config.engine == "triton" else embedded_engine(config, directory)
    served = wrap(engine)
    observability = Observability(config, served, directory, is_worker=handoff_channel is not None)
    server = Server(config, served, handoff_channel, observability, directory)
    port = server.start()
    if heartbeats is not None:
        server.show_life(lambda has_answered: heartbeats.give(worker, has_answered))
    # What start-up made stays; looking through it again for garbage would only cost requests their time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    if not served.is_ready():
        _log.info("waiting for Triton at %s", config.triton)
        _wait(stop, parent, served.is_ready)
    if served.is_ready():
        on_ready(port, example_call(served, config, port))
    _wait(stop, parent)
    _log.info("draining")
    server.stop()
    engine.stop()


def _wait(stop: StopSignal, parent: int, until: Callable[[], bool] = lambda: False) -> None:
    """Until stopped, or `until` is true."""
    while not until() and not stop.wait(1.0):
        if parent and os.getppid() != parent:
            _log.error("the supervisor process has exited")
            return
