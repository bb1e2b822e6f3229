"""Every metric that Ghostless exposes: name, labels, buckets and what it means.

One object per process. With several workers the process that is scraped merges their values (collector.py), which is
why gauges say how they are to be merged.
"""

from prometheus_client import CollectorRegistry

from serving.engines.interface import ModelVersion
from serving.telemetry.buckets import LogBuckets
from serving.telemetry.collector import OwnValues
from serving.telemetry.metric_maker import MetricMaker
from serving.telemetry.values import ValueMemory

MODEL = ("model", "version", "head")
NO_MODEL = ("", "", "")

ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0, 2048.0, 4096.0, 10_000.0)
LAG_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 7 * 86_400.0)
SHARE = LogBuckets(-16, 0)
DEVIATION = LogBuckets(-12, 12)
VARIANCE = LogBuckets(-16, 12)
ENTROPY = tuple(round(0.25 * step, 2) for step in range(1, 25))
PIT = tuple(step / 20 for step in range(1, 21))
# Scores can be negative; the lowest bound is 0 all the same, since a histogram with a negative one has no _sum.
SCORES = (0.0, *(0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75), *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0))


def labels_of(model: ModelVersion | None) -> tuple[str, str, str]:
    """Values of the labels MODEL; empty for a request that resolved none."""
    return model.labels if model is not None else NO_MODEL


class ServerMetrics:
    """`registry` is for who wants to collect this process' values here."""

    def __init__(self, memory: ValueMemory | None = None) -> None:
        memory = memory or ValueMemory()
        self.registry = CollectorRegistry()
        self.registry.register(OwnValues(memory))
        self.requests = RequestMetrics(memory)
        self.models = ModelMetrics(memory)
        self.uncertainty = UncertaintyMetrics(memory)
        self.outcomes = OutcomeMetrics(memory)


class RequestMetrics:
    """Of Predict and ModelInfer."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.requests = make.counter(
            "requests",
            "Calls that ended, by the gRPC status that left; model, version and head are empty where the request did "
            "not get so far as to name one. Counted before the answer leaves.",
            ("method", "code", *MODEL),
        )
        self.request_seconds = make.seconds(
            "request_seconds", "From the request's message to its answer.", ("method", *MODEL)
        )
        self.queue_seconds = make.seconds("queue_seconds", "Waiting for a free slot, or for a Triton with room.", MODEL)
        self.batch_wait_seconds = make.seconds(
            "batch_wait_seconds", "Waiting for rows to run with (--batch-window-ms), and merging them.", MODEL
        )
        self.compute_seconds = make.seconds(
            "compute_seconds", "The graph's run; with Triton, from the call to its decoded answer.", MODEL
        )
        self.encode_seconds = make.seconds(
            "encode_seconds", "From the outputs to the answer: checks, scoring, encoding.", MODEL
        )
        self.request_rows = make.histogram("request_rows", "Rows of a request that ran.", MODEL, ROWS)
        self.batch_rows = make.histogram(
            "batch_rows", "Rows of the run that a request was part of, once per request.", MODEL, ROWS
        )
        self.queue_rows = make.gauge(
            "queue_rows", "Rows that wait; with Triton, that wait or are there. Sum of all workers.", (), "sum"
        ).labels()
        self.rejected = make.counter(
            "rejected",
            "Calls refused: reason queue (over --queue-rows) or message (over --max-message-mb, or cut off midway).",
            ("reason",),
            known=("queue", "message"),
        )
        self.unknown_features = make.counter(
            "unknown_features",
            "Columns of requests that the model does not take and that were ignored (--unknown-features).",
            MODEL,
        )
        self.expired = make.counter(
            "expired",
            "Calls whose deadline passed: stage arrival (before they were queued), queue, or engine (Triton had them).",
            ("stage",),
            known=("arrival", "queue", "engine"),
        )
        self.cancelled = make.counter("cancelled", "Calls whose client left before the answer.", ()).labels()
        self.observations_dropped = make.counter(
            "observations_dropped",
            "Calls whose rows are missing from the metrics of rows, and from outcomes and logs, because they came "
            "faster than they could be looked at. requests_total counts them all the same.",
            (),
        ).labels()
        self.resident_bytes = make.gauge("process_resident_bytes", "Memory of each worker process.", ("pid",), "sum")


class ModelMetrics:
    """Of the models and of what runs them."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.info = make.gauge(
            "model_info",
            "1 for each version that is loaded, with in_service as it is now; 0 for what no longer holds.",
            (*MODEL, "model_method", "in_service"),
            "max",
        )
        self.pair_verdict = make.gauge(
            "pair_verdict",
            "1 with what held-out pairs said of the version's split at export: agrees, disagrees or unverified.",
            (*MODEL, "verdict"),
            "max",
        )
        self.load_seconds = make.gauge(
            "model_load_seconds", "Reading and checking the file; the slowest worker's.", MODEL, "max"
        )
        self.warm_up_seconds = make.gauge(
            "model_warm_up_seconds", "First runs of every batch size; the slowest worker's.", MODEL, "max"
        )
        self.ready = make.gauge(
            "ready",
            "Workers whose every model has a version in service; compare with the workers started.",
            (),
            "sum",
        ).labels()
        self.workers = make.gauge("workers", "Worker processes that are alive.", (), "sum").labels()
        self.endpoint_up = make.gauge(
            "endpoint_up",
            "1 if the Triton is ready, as the worker sees it that sees it worst.",
            ("endpoint",),
            "min",
        )
        self.breaker_state = make.gauge(
            "breaker_state",
            "The Triton's circuit breaker: 0 closed, 1 half-open, 2 open; the worst of all workers.",
            ("endpoint",),
            "max",
        )
        self.endpoint_retries = make.counter(
            "endpoint_retries", "Calls to this Triton that failed and were tried on another.", ("endpoint",)
        )


class UncertaintyMetrics:
    """Of the rows that were answered; all but the first of those in the answers that --uncertainty-rate draws."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.rows = make.counter("rows", "Rows answered.", MODEL)
        self.uncertainty_rows = make.counter(
            "uncertainty_rows",
            "Rows that the uncertainty metrics looked at: what their counters are rates of.",
            MODEL,
        )
        self.epistemic_share = make.histogram(
            "epistemic_share", "Epistemic part of the predictive variance.", MODEL, SHARE.bounds
        )
        self.epistemic_std = make.histogram(
            "epistemic_std", "Root of the epistemic variance, in the target's unit.", MODEL, DEVIATION.bounds
        )
        self.aleatoric_std = make.histogram(
            "aleatoric_std", "Root of the aleatoric variance, in the target's unit.", MODEL, DEVIATION.bounds
        )
        self.logit_variance = make.histogram(
            "logit_variance", "phi' S phi: how far the row lies from what was trained on.", MODEL, VARIANCE.bounds
        )
        self.bin_entropy_nats = make.histogram(
            "bin_entropy_nats", "Entropy of the bins' probabilities, of every 16th row.", MODEL, ENTROPY
        )
        self.interval_width = make.histogram(
            "interval_width",
            "Width of the central interval of this level, in the target's unit, of every 16th row.",
            ("level", *MODEL),
            DEVIATION.bounds,
        )
        self.out_of_distribution_rows = make.counter(
            "out_of_distribution_rows",
            "Rows whose logit variance is over the 99.9th percentile of the training set, as stored at export.",
            MODEL,
        )
        self.out_of_range_rows = make.counter(
            "out_of_range_rows",
            "Rows whose value of this feature lies outside the range seen in training, as stored at export.",
            ("feature", *MODEL),
        )
        self.unknown_ids = make.counter(
            "unknown_ids", "Rows whose id of this feature was never seen in training.", ("feature", *MODEL)
        )
        self.quantile_crossings = make.counter(
            "quantile_crossings",
            "Rows, of every 16th, whose returned quantiles fall somewhere; the graph is made so that none do.",
            MODEL,
        )
        self.non_finite_outputs = make.counter(
            "non_finite_outputs",
            "Requests refused with INTERNAL because the graph returned NaN or infinity; always 0 for a sound model.",
            MODEL,
        )


class OutcomeMetrics:
    """Of predictions whose actual value was reported later."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.outcomes = make.counter(
            "outcomes",
            "Outcomes reported, by result: joined, late, unknown, duplicate, invalid or skipped; model, version and "
            "head where the prediction is known.",
            ("result", *MODEL),
        )
        self.lag_seconds = make.histogram(
            "outcome_lag_seconds", "Seconds from the prediction to its outcome.", MODEL, LAG_SECONDS
        )
        self.interval_rows = make.counter(
            "outcome_interval_rows", "Joined rows that have a central interval of this level.", ("level", *MODEL)
        )
        self.covered_rows = make.counter(
            "outcome_covered_rows",
            "Of outcome_interval_rows_total, those inside it by the randomised PIT; the ratio is the coverage.",
            ("level", *MODEL),
        )
        self.below_rows = make.counter(
            "outcome_below_rows",
            "Joined rows whose randomised PIT is at or below this level; over all joined rows it should be the level.",
            ("level", *MODEL),
        )
        self.pit = make.histogram("pit", "Randomised PIT of the actual value; flat for a calibrated model.", MODEL, PIT)
        self.nll = make.histogram("outcome_nll", "Negative log likelihood of the actual value, in nats.", MODEL, SCORES)
        self.crps = make.histogram(
            "outcome_crps", "Continuous ranked probability score, in the target's unit.", MODEL, SCORES
        )
        self.pairs = PairMetrics(memory)
        self.predictions_stored = make.gauge(
            "outcome_predictions_stored", "Predictions that wait for their outcomes, in rows.", (), "sum"
        ).labels()
        self.acquisition_rows = make.counter(
            "acquisition_rows",
            "Rows for the acquisition log: written, or dropped by its bounds.",
            ("result",),
            known=("written", "dropped"),
        )


class PairMetrics:
    """Of pairs of joined outcomes (serving/outcomes/pairs.py)."""

    def __init__(self, memory: ValueMemory) -> None:
        make = MetricMaker(memory)
        self.count = make.counter(
            "pairs",
            "Pairs of joined outcomes: of one request (shared context), or of one candidate in two contexts (shared "
            "candidate). Each outcome is paired with the one before it.",
            ("shared", *MODEL),
        )
        self.products = make.counter(
            "pair_products",
            "Sum of r_i r_j over the pairs, r = outcome - mean, positive and negative products apart; positive less "
            "negative over pairs_total is the measured variance of the error that the pairs share.",
            ("shared", "sign", *MODEL),
        )
        self.squares = make.counter(
            "pair_squares",
            "Sum of (r_i r_j)^2 over the pairs; its root over pairs_total is the measured variance's standard error.",
            ("shared", *MODEL),
        )
        self.served = make.counter(
            "pair_served",
            "Sum of the covariance that was served over the pairs; over pairs_total it should be the measured variance "
            "(for a shared candidate, at least that).",
            ("shared", *MODEL),
        )
