"""Every metric that Ghostless exposes: name, labels and buckets. help_texts.py has their HELP texts.

One object per process. With several workers, the process that is scraped merges their values (collector.py), so each
gauge declares how its values are merged.
"""

from prometheus_client import CollectorRegistry

from serving.engines.interface import ModelVersion
from serving.http2.errors import Closing
from serving.telemetry.buckets import LogBuckets
from serving.telemetry.collector import OwnValues
from serving.telemetry.metric_maker import MetricMaker
from serving.telemetry.values import ValueMemory
from serving.transport.closings import ConnectionObserver
from serving.transport.tls import HANDSHAKE_RESULTS

MODEL = ("model", "version", "head")
NO_MODEL = ("", "", "")

ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0, 2048.0, 4096.0, 10_000.0)
LAG_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 7 * 86_400.0)
SHARE = LogBuckets(-16, 0)
DEVIATION = LogBuckets(-12, 12)
VARIANCE = LogBuckets(-16, 12)
ENTROPY = tuple(round(0.25 * step, 2) for step in range(1, 25))
PIT = tuple(step / 20 for step in range(1, 21))
# Scores can be negative, but the lowest bound is 0, because a histogram with negative bounds has no _sum.
SCORES = (0.0, *(0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75), *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0))


def labels_of(model: ModelVersion | None) -> tuple[str, str, str]:
    """Values of the labels MODEL; empty for a request that named no known model."""
    return model.labels if model is not None else NO_MODEL


class ServerMetrics:
    """All metrics of one process. `registry` exposes the values of this process alone."""

    def __init__(self, memory: ValueMemory | None = None) -> None:
        memory = memory or ValueMemory()
        self.registry = CollectorRegistry()
        self.registry.register(OwnValues(memory))
        self.requests = RequestMetrics(memory)
        self.models = ModelMetrics(memory)
        self.uncertainty = UncertaintyMetrics(memory)
        self.outcomes = OutcomeMetrics(memory)
        self.logs = LogMetrics(memory)
        self.connections = ConnectionMetrics(memory)
        self.security = SecurityMetrics(memory)


class RequestMetrics:
    """Metrics of the methods Predict and ModelInfer."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.requests = make.counter("requests", ("method", "code", *MODEL))
        self.request_seconds = make.seconds("request_seconds", ("method", *MODEL))
        self.queue_seconds = make.seconds("queue_seconds", MODEL)
        self.batch_wait_seconds = make.seconds("batch_wait_seconds", MODEL)
        self.compute_seconds = make.seconds("compute_seconds", MODEL)
        self.encode_seconds = make.seconds("encode_seconds", MODEL)
        self.request_rows = make.histogram("request_rows", MODEL, ROWS)
        self.batch_rows = make.histogram("batch_rows", MODEL, ROWS)
        self.queue_rows = make.gauge("queue_rows", (), "sum").labels()
        self.rejected = make.counter("rejected", ("reason",), known=("queue", "message"))
        self.unknown_features = make.counter("unknown_features", MODEL)
        self.expired = make.counter("expired", ("stage",), known=("arrival", "queue", "engine"))
        self.unknown_methods = make.counter("unknown_methods", ()).labels()
        self.cancelled = make.counter("cancelled", ()).labels()
        self.observations_dropped = make.counter("observations_dropped", ()).labels()
        self.resident_bytes = make.gauge("process_resident_bytes", ("pid",), "sum")


class ConnectionMetrics:
    """Metrics of the clients' connections."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.open = make.gauge("connections", (), "sum").labels()
        self.held_bytes = make.gauge("client_memory_bytes", (), "sum").labels()
        self.closed = make.counter("connections_closed", ("reason",), known=tuple(Closing))
        self.observer = ConnectionObserver(self._on_closed, self._on_state)

    def _on_closed(self, reason: Closing, number: int) -> None:
        self.closed.labels(reason.value).inc(number)

    def _on_state(self, connections: int, held_bytes: int) -> None:
        self.open.set(connections)
        self.held_bytes.set(held_bytes)


class ModelMetrics:
    """Metrics of the models and of the engines that run them."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.info = make.gauge("model_info", (*MODEL, "model_method", "in_service"), "max")
        self.wanted_version = make.gauge("model_wanted_version", ("model",), "max")
        self.served_version = make.gauge("model_served_version", ("model",), "min")
        self.version_failed = make.gauge("model_version_failed", ("model", "version"), "max")
        self.pair_verdict = make.gauge("pair_verdict", (*MODEL, "verdict"), "max")
        self.load_seconds = make.gauge("model_load_seconds", MODEL, "max")
        self.warm_up_seconds = make.gauge("model_warm_up_seconds", MODEL, "max")
        self.ready = make.gauge("ready", (), "sum").labels()
        self.workers = make.gauge("workers", (), "sum").labels()
        self.workers_configured = make.gauge("workers_configured", (), "max").labels()
        self.build_info = make.gauge("build_info", ("version", "python", "engine"), "max")
        self.endpoint_up = make.gauge("endpoint_up", ("endpoint",), "min")
        self.breaker_state = make.gauge("breaker_state", ("endpoint",), "max")
        self.endpoint_retries = make.counter("endpoint_retries", ("endpoint",))


class UncertaintyMetrics:
    """Metrics of the rows in responses. All but `rows` cover only the responses that --uncertainty-rate samples."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.rows = make.counter("rows", MODEL)
        self.uncertainty_rows = make.counter("uncertainty_rows", MODEL)
        self.epistemic_share = make.histogram("epistemic_share", MODEL, SHARE.bounds)
        self.epistemic_std = make.histogram("epistemic_std", MODEL, DEVIATION.bounds)
        self.aleatoric_std = make.histogram("aleatoric_std", MODEL, DEVIATION.bounds)
        self.logit_variance = make.histogram("logit_variance", MODEL, VARIANCE.bounds)
        self.bin_entropy_nats = make.histogram("bin_entropy_nats", MODEL, ENTROPY)
        self.interval_width = make.histogram("interval_width", ("level", *MODEL), DEVIATION.bounds)
        self.out_of_distribution_rows = make.counter("out_of_distribution_rows", MODEL)
        self.out_of_range_rows = make.counter("out_of_range_rows", ("feature", *MODEL))
        self.unknown_ids = make.counter("unknown_ids", ("feature", *MODEL))
        self.quantile_crossings = make.counter("quantile_crossings", MODEL)
        self.non_finite_outputs = make.counter("non_finite_outputs", MODEL)


class OutcomeMetrics:
    """Metrics of predictions whose actual value was reported later."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.outcomes = make.counter("outcomes", ("result", *MODEL))
        self.lag_seconds = make.histogram("outcome_lag_seconds", MODEL, LAG_SECONDS)
        self.interval_rows = make.counter("outcome_interval_rows", ("level", *MODEL))
        self.covered_rows = make.counter("outcome_covered_rows", ("level", *MODEL))
        self.below_rows = make.counter("outcome_below_rows", ("level", *MODEL))
        self.pit = make.histogram("pit", MODEL, PIT)
        self.nll = make.histogram("outcome_nll", MODEL, SCORES)
        self.crps = make.histogram("outcome_crps", MODEL, SCORES)
        self.pairs = PairMetrics(memory)
        self.predictions_stored = make.gauge("outcome_predictions_stored", (), "sum").labels()


class LogMetrics:
    """Metrics of the access log and the acquisition log."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.acquisition_rows = make.counter("acquisition_rows", ("result",), known=("written", "dropped"))
        self.access_log_lines = make.counter("access_log_lines", ("result",), known=("written", "dropped"))
        self.write_failures = make.counter("log_write_failures", ("log",), known=("access", "acquisition"))


class SecurityMetrics:
    """Metrics of TLS and of identities."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.expiry_seconds = make.gauge("certificate_expiry_seconds", ("file",), "min")
        self.handshakes = make.counter("tls_handshakes", ("result",), known=HANDSHAKE_RESULTS)
        self.reloads = make.counter("security_reloads", ("file", "result"))
        self.refused = make.counter("refused_calls", ("identity", "reason"))


class PairMetrics:
    """Metrics of pairs of joined outcomes (serving/outcomes/pairs.py)."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.count = make.counter("pairs", ("shared", *MODEL))
        self.products = make.counter("pair_products", ("shared", "sign", *MODEL))
        self.squares = make.counter("pair_squares", ("shared", *MODEL))
        self.served = make.counter("pair_served", ("shared", *MODEL))
