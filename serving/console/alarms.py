"""The conditions of the alerts in deploy/prometheus, evaluated for this server from the console's own samples.

Prometheus sees every server over days; the console sees one server over the last minutes, so no alert here compares
with the day before. Runbook paragraphs are those of docs/observability.md (tools/runbook.py copies them).
"""

import time
from collections.abc import Iterator
from typing import Any

from serving.console.figures import Sample, View
from serving.console.live import change, interval, ratio, recent, versions

_WINDOW_S = 300.0
_DAY_S = 86_400.0
_LEAST_OUTCOMES = 1000
_LEAST_ROWS = 200

Alarm = tuple[str, str, str]


def alarms(view: View, runbook: dict[str, str]) -> dict[str, Any]:
    now, then = view.samples[-1], recent(view.samples, _WINDOW_S)
    found = [
        *_serving(now, then),
        *_models(now),
        *_requests(now, then),
        *_uncertainty(now, then),
        *_outcomes(now, then),
    ]
    return {
        "alarms": [
            {"name": name, "severity": severity, "summary": summary, "runbook": runbook.get(name, "")}
            for name, severity, summary in found
        ],
        "window_s": now.time - then.time,
    }


def _serving(now: Sample, then: Sample) -> Iterator[Alarm]:
    ready, configured = now.total("ready"), now.total("workers_configured")
    # Every worker reports the configured number of workers.
    configured = max((numbers[0] for _, numbers in now.series("workers_configured")), default=configured)
    if not ready:
        yield "GhostlessNoReadyModel", "page", "No worker has every model in service."
    elif ready < configured:
        yield "GhostlessWorkersNotReady", "ticket", f"Only {ready:g} of {configured:g} workers are ready."
    restarts = change(now, then, "worker_restarts")
    if restarts >= 5:
        yield "GhostlessWorkerCrashLoop", "page", f"Workers were replaced {restarts:g} times."
    elif restarts:
        yield "GhostlessWorkerRestarts", "ticket", f"Workers were replaced {restarts:g} times."
    if change(now, then, "log_write_failures"):
        yield "GhostlessLogNotWritten", "ticket", "A log file could not be written."
    for named, numbers in now.series("certificate_expiry_seconds"):
        left_s = numbers[0] - time.time()
        name = "GhostlessCertificateExpiresNow" if left_s < 2 * _DAY_S else "GhostlessCertificateExpiring"
        if left_s < 14 * _DAY_S:
            severity = "page" if left_s < 2 * _DAY_S else "ticket"
            yield name, severity, f"The TLS file {named['file']} expires in {left_s / _DAY_S:.1f} days."
    up = [numbers[0] for _, numbers in now.series("endpoint_up")]
    if up and not any(up):
        yield "GhostlessNoEndpoint", "page", "No Triton server can be reached."
    if any(numbers[0] == 2 for _, numbers in now.series("breaker_state")):
        yield "GhostlessBreakerOpen", "ticket", "The circuit breaker of a Triton server is open."


def _models(now: Sample) -> Iterator[Alarm]:
    served = now.by("model_served_version", "model")
    for model, wanted in now.by("model_wanted_version", "model").items():
        if wanted and served.get(model, 0.0) != wanted:
            yield (
                "GhostlessWantedVersionNotServed",
                "ticket",
                f"{model}: version {wanted:g} is wanted, version {served.get(model, 0.0):g} is served.",
            )
    for named, numbers in now.series("model_version_failed"):
        if numbers[0]:
            yield "GhostlessVersionFailed", "ticket", f"{named['model']} version {named['version']} can't be loaded."


def _requests(now: Sample, then: Sample) -> Iterator[Alarm]:
    figures = interval(now, then, {})
    requests = change(now, then, "requests")
    errors = ratio(figures["errors_per_s"], figures["requests_per_s"]) or 0.0
    if errors > 14.4 * 0.001 and requests >= _LEAST_ROWS:
        yield "GhostlessErrorBudgetBurn", "page", f"{errors:.1%} of requests fail with a server error."
    if (figures["slow_share"] or 0.0) > 14.4 * 0.01 and requests >= _LEAST_ROWS:
        yield "GhostlessLatencyBudgetBurn", "page", f"{figures['slow_share']:.1%} of responses take over 50 ms."
    rejected = ratio(change(now, then, "rejected"), requests) or 0.0
    if rejected > 0.01:
        yield "GhostlessRejecting", "ticket", f"{rejected:.1%} of requests are rejected."
    if change(now, then, "observations_dropped"):
        yield "GhostlessObservationsDropped", "ticket", "Requests are missing from the per-row metrics."
    if change(now, then, "non_finite_outputs"):
        yield "GhostlessNonFiniteOutputs", "page", "A model returned NaN or infinity."


def _uncertainty(now: Sample, then: Sample) -> Iterator[Alarm]:
    for named in versions(now):
        which = f"{named['model']} version {named['version']}"
        if change(now, then, "uncertainty_rows", **named) < _LEAST_ROWS:
            continue
        figures = interval(now, then, named)
        if (figures["out_of_distribution"] or 0.0) > 0.01:
            share = figures["out_of_distribution"]
            yield (
                "GhostlessOutOfDistributionSurge",
                "ticket",
                f"{which}: {share:.1%} of rows are unlike its training data.",
            )
        for feature, unknown in figures["unknown_ids"].items():
            if (unknown or 0.0) > 0.25:
                yield (
                    "GhostlessUnknownIdsRise",
                    "ticket",
                    f"{which}: {unknown:.1%} of the ids in {feature} are unknown.",
                )


def _outcomes(now: Sample, then: Sample) -> Iterator[Alarm]:
    for named in versions(now):
        for level, rows in now.by("outcome_interval_rows", "level", **named).items():
            covered = ratio(now.total("outcome_covered_rows", level=level, **named), rows)
            if rows >= _LEAST_OUTCOMES and covered is not None and abs(covered - float(level)) > 0.05:
                yield (
                    "GhostlessCoverageDrift",
                    "ticket",
                    f"{named['model']} version {named['version']}: {covered:.1%} of {rows:g} outcomes are inside the "
                    f"{float(level):.0%} interval.",
                )
    results = now.by("outcomes", "result")
    sent = sum(results.get(name, 0.0) for name in ("joined", "late", "unknown"))
    if sent >= _LEAST_OUTCOMES and results.get("joined", 0.0) / sent < 0.9:
        yield "GhostlessOutcomesUnjoined", "ticket", f"{results.get('joined', 0.0) / sent:.1%} of outcomes are matched."
