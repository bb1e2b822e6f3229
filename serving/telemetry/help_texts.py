"""HELP text of every metric, by its name without the namespace. Each text must be understandable on its own."""

NAMESPACE = "ghostless"

HELP = {
    # SecurityMetrics
    "certificate_expiry_seconds": (
        "When a file of the TLS configuration expires, in seconds since the epoch: server (--tls-cert), client_ca "
        "(--tls-client-ca) or crl (--tls-crl, when its next update is due)."
    ),
    "tls_handshakes": (
        "TLS handshakes by result: ok, failed (also without an accepted client certificate), timeout "
        "(--tls-handshake-s) or no_alpn (the client did not offer h2)."
    ),
    "security_reloads": (
        "Changed security files that were loaded again, by file (tls, identities) and result (ok, failed). After a "
        "failure the previous content stays in use. Counted once per worker."
    ),
    "refused_calls": (
        "Calls refused by access control, by identity and reason. UNAUTHENTICATED: missing, token (unknown or wrong), "
        "expired, certificate (of no identity). PERMISSION_DENIED: call, model. RESOURCE_EXHAUSTED: row_rate, "
        "concurrent_rows. "
        "The identity is empty if it is not known."
    ),
    # RequestMetrics
    "requests": (
        "Finished Predict and ModelInfer calls by gRPC status code. The labels model, version and head are empty if "
        "the call failed before its model was known. Counted just before the response is sent."
    ),
    "request_seconds": "Server-side latency of a call in seconds, from the complete request message to the response.",
    "queue_seconds": (
        "Time in seconds that a request waited for a free inference slot or a Triton server with capacity."
    ),
    "batch_wait_seconds": (
        "Time in seconds that a request waited for others to share its batch (--batch-window-ms), including the time "
        "to merge them."
    ),
    "compute_seconds": (
        "Time in seconds to run the model. With Triton, the whole call to Triton until its response is decoded."
    ),
    "encode_seconds": "Time in seconds to turn model outputs into a response: checking, scoring and encoding.",
    "request_rows": "Rows (candidates) per request, of the requests that were run.",
    "batch_rows": (
        "Rows in the batch that a request ran in. Observed once per request, so a batch of three requests counts three "
        "times."
    ),
    "queue_rows": (
        "Rows waiting to be run, over all workers. With Triton, includes rows sent to it and not yet answered."
    ),
    "rejected": (
        "Calls rejected because of overload or size. reason=queue: the queue was full (--queue-rows). reason=message: "
        "the message was larger than --max-message-mb or incomplete."
    ),
    "unknown_features": (
        "Request columns that were ignored because they are not features of the model (--unknown-features)."
    ),
    "expired": (
        "Calls that missed their deadline, by stage: arrival (before they were queued), queue (while waiting) or "
        "engine (while Triton ran them)."
    ),
    "unknown_methods": "Calls of a gRPC method that the server does not have; they fail with UNIMPLEMENTED.",
    "cancelled": "Calls that the client cancelled, or whose connection closed, before the response was sent.",
    "observations_dropped": (
        "Calls missing from the per-row metrics, the outcome store and the logs because the background thread that "
        "processes them could not keep up. ghostless_requests_total still counts them."
    ),
    "process_resident_bytes": "Resident memory (RSS) of each worker process in bytes.",
    # ConnectionMetrics
    "connections": "Open client connections, over all workers.",
    "client_memory_bytes": (
        "Estimated memory in bytes used by incomplete requests and unread responses (--client-memory-mb)."
    ),
    "connections_closed": (
        "Client connections that ended, by reason. Ordinary: client (the client closed it), idle "
        "(--connection-idle-s), age (--connection-age-s), shutdown. Refused: too_many (--max-connections), "
        "too_many_of_peer (--max-connections-per-peer), too_frequent and bad_peer (its address connected or "
        "misbehaved too often), not_http2. "
        "Misbehaving clients: protocol (invalid HTTP/2), headers (far too large), flood (too many frames without a "
        "call), preface_deadline, header_deadline, unread (responses not read), memory (--client-memory-mb). "
        "server_error: a bug in the server."
    ),
    # ModelMetrics
    "model_info": (
        "1 for each loaded model version, with its current in_service label; 0 for unloaded versions and outdated "
        "labels."
    ),
    "model_wanted_version": (
        "Version of the model that should be in service: what `ghostless models promote` chose, or the highest one."
    ),
    "model_served_version": (
        "Version of the model that requests without a version get; the lowest over all workers, 0 if there is none."
    ),
    "model_version_failed": (
        "1 for each model version that a worker could not load. The log and `ghostless models list --address` say why."
    ),
    "pair_verdict": (
        "1 for the verdict of the pair test at export: does the epistemic variance agree with held-out data? verdict "
        "is agrees, disagrees or unverified."
    ),
    "model_load_seconds": "Time in seconds to read and check a model version's file, on the slowest worker.",
    "model_warm_up_seconds": (
        "Time in seconds to warm up a model version by running each batch size once, on the slowest worker."
    ),
    "ready": (
        "Workers that have a version in service for every model. Below ghostless_workers while some are not ready."
    ),
    "workers": "Worker processes that are running.",
    "worker_restarts": (
        "Workers that ended and were replaced, by reason: exited (by themselves), killed (by a signal, for example by "
        "the kernel when out of memory) or hung (without a heartbeat for --worker-timeout-s)."
    ),
    "workers_configured": "Worker processes that should be running (--workers).",
    "build_info": "1; the labels are the versions of the server and of Python, and the inference engine.",
    "endpoint_up": "1 if the Triton server at this endpoint is ready according to every worker, else 0.",
    "breaker_state": (
        "Circuit breaker of the Triton server at this endpoint: 0 closed, 1 half-open, 2 open (endpoint skipped). "
        "The highest value over all workers."
    ),
    "endpoint_retries": "Calls to the Triton server at this endpoint that failed and were retried on another server.",
    # UncertaintyMetrics
    "rows": "Rows (candidates) in responses.",
    "uncertainty_rows": (
        "Rows sampled for the uncertainty metrics (--uncertainty-rate): the denominator for rates of "
        "out-of-distribution rows, out-of-range rows and unknown ids."
    ),
    "epistemic_share": "Epistemic variance of a row as a fraction of its predictive variance, 0 to 1.",
    "epistemic_std": (
        "Epistemic standard deviation of a row (uncertainty that more data would reduce), in the target's unit."
    ),
    "aleatoric_std": "Aleatoric standard deviation of a row (noise of the target itself), in the target's unit.",
    "logit_variance": (
        "Posterior variance of a row's logits, phi' S phi. Grows with the row's distance from the training data."
    ),
    "bin_entropy_nats": "Entropy in nats of a row's predicted bin probabilities. Computed for every 16th sampled row.",
    "interval_width": (
        "Width of a row's central prediction interval at this level, in the target's unit. Computed for every 16th "
        "sampled row."
    ),
    "out_of_distribution_rows": (
        "Sampled rows whose logit variance exceeds the 99.9th percentile of the training data, a threshold stored in "
        "the model at export."
    ),
    "out_of_range_rows": (
        "Sampled rows in which this feature is outside the range of the training data, a range stored in the model at "
        "export."
    ),
    "unknown_ids": "Sampled rows in which this id feature has a value that the training data does not contain.",
    "quantile_crossings": (
        "Rows whose returned quantiles decrease with the level, among every 16th sampled row. Always 0 for a correctly "
        "exported model."
    ),
    "non_finite_outputs": (
        "Requests that failed with INTERNAL because the model returned NaN or infinity. Always 0 for a working model."
    ),
    # OutcomeMetrics
    "outcomes": (
        "Outcomes reported through RecordOutcomes, by result: joined (matched with a stored prediction), late (the "
        "prediction is no longer stored), unknown (no such request_id), duplicate (reported before), invalid (not "
        "finite, or no such row) or skipped (outside --outcome-rate). model, version and head are set if the "
        "prediction is known."
    ),
    "outcome_lag_seconds": "Time in seconds between a prediction and the report of its outcome.",
    "outcome_interval_rows": "Outcomes matched with a prediction that has a central interval at this level.",
    "outcome_covered_rows": (
        "Outcomes inside the central prediction interval at this level, by randomised PIT. Divide by "
        "ghostless_outcome_interval_rows_total for the coverage."
    ),
    "outcome_below_rows": (
        "Outcomes whose randomised PIT is at or below this level. As a fraction of all joined outcomes it equals the "
        "level if the model is calibrated."
    ),
    "pit": (
        "Probability integral transform (PIT) of the outcomes, randomised at values with a point mass. Uniform for a "
        "calibrated model."
    ),
    "outcome_nll": "Negative log-likelihood of an outcome under its prediction, in nats.",
    "outcome_crps": "Continuous ranked probability score (CRPS) of an outcome, in the target's unit; lower is better.",
    "outcome_predictions_stored": "Predicted rows stored in memory, waiting for their outcomes.",
    # LogMetrics
    "acquisition_rows": (
        "Rows selected for the acquisition log (--acquisition-log), by result: written (counted when their file is "
        "closed), or dropped because the disk was full or too slow."
    ),
    "access_log_lines": (
        "Lines for the access log (--access-log), by result: written, or dropped because the disk was full or too slow "
        "or there were more than 100 errors per second."
    ),
    "log_write_failures": "Failed attempts to write a log file, by log: access or acquisition.",
    # PairMetrics
    "pairs": (
        "Pairs of joined outcomes for checking the epistemic variance. shared=context: two rows of one request; "
        "shared=candidate: one candidate in two requests. Each outcome is paired with the previous one."
    ),
    "pair_products": (
        "Sum of the absolute products of residuals r_i r_j (r = outcome - predicted mean) over pairs of outcomes, by "
        "the product's sign. (positive - negative) / ghostless_pairs_total measures the variance of the shared error."
    ),
    "pair_squares": (
        "Sum of squared products of residuals (r_i r_j)^2 over pairs of outcomes. Its square root divided by "
        "ghostless_pairs_total is the standard error of the measured variance."
    ),
    "pair_served": (
        "Sum of the predicted epistemic covariance over pairs of outcomes. Divided by ghostless_pairs_total it should "
        "equal the measured variance (for shared=candidate, be at least as large)."
    ),
}
