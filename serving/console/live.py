"""What the pages "live" and "truth" show, computed from samples."""

from collections.abc import Mapping, Sequence
from typing import Any

from serving.console.figures import Histogram, Point, Sample, View

_ERRORS = ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
# Seconds over which the table of versions is averaged.
_RECENT_S = 60.0
_PIT_BARS = 20
_SHOWN_POINTS = 180


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def change(now: Sample, then: Sample, family: str, **labels: str) -> float:
    """The increase of a counter."""
    return max(0.0, now.total(family, **labels) - then.total(family, **labels))


def interval(now: Sample, then: Sample, labels: Mapping[str, str]) -> dict[str, Any]:
    """Figures between two samples."""
    seconds = max(now.time - then.time, 1e-3)
    latency = _between(now, then, "request_seconds", labels)
    share = _between(now, then, "epistemic_share", labels)
    rows = change(now, then, "uncertainty_rows", **labels)
    requests = change(now, then, "requests", **labels)
    errors = sum(change(now, then, "requests", code=code, **labels) for code in _ERRORS)
    unknown, before = now.by("unknown_ids", "feature", **labels), then.by("unknown_ids", "feature", **labels)
    return {
        "time": now.time,
        "requests_per_s": requests / seconds,
        "errors_per_s": errors / seconds,
        "rows_per_s": change(now, then, "rows", **labels) / seconds,
        "p50_s": latency.quantile(0.5),
        "p95_s": latency.quantile(0.95),
        "p99_s": latency.quantile(0.99),
        "slow_share": latency.share_above(0.05),
        "queue_rows": now.total("queue_rows"),
        "connections": now.total("connections"),
        "refused_per_s": (change(now, then, "rejected") + change(now, then, "refused_calls")) / seconds,
        "epistemic_share": share.mean,
        "epistemic_std": _between(now, then, "epistemic_std", labels).mean,
        "aleatoric_std": _between(now, then, "aleatoric_std", labels).mean,
        "out_of_distribution": ratio(change(now, then, "out_of_distribution_rows", **labels), rows),
        "unknown_ids": {name: ratio(max(0.0, value - before.get(name, 0.0)), rows) for name, value in unknown.items()},
        "nll": _between(now, then, "outcome_nll", labels).mean,
        "crps": _between(now, then, "outcome_crps", labels).mean,
        "outcomes": change(now, then, "outcomes", result="joined", **labels),
    }


def summarise(now: Sample, then: Sample) -> Point:
    """Figures between two samples of all models together, and of each version."""
    keys = [("", ""), *((each["model"], each["version"]) for each in versions(now))]
    return {key: interval(now, then, dict(zip(("model", "version"), key, strict=True))) for key in keys}


def series(points: Sequence[Point], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The points of one version or of all, thinned to what a chart can show; the last point is always included."""
    key = (labels.get("model", ""), labels.get("version", ""))
    found = [point[key] for point in points if key in point]
    step = -(-len(found) // _SHOWN_POINTS) or 1
    return found[(len(found) - 1) % step :: step]


def live(view: View, labels: Mapping[str, str]) -> dict[str, Any]:
    """Series over the last hour, and the last minute by version."""
    now = view.samples[-1]
    then = recent(view.samples, _RECENT_S)
    return {
        "series": series(view.points, labels),
        "workers": {"ready": now.total("ready"), "configured": now.total("workers_configured")},
        "versions": [{**named, **interval(now, then, named)} for named in versions(now)],
        "by_code": {code: change(now, then, "requests", code=code) for code in now.by("requests", "code")},
        "window_s": now.time - then.time,
        "totals": {"requests": now.total("requests", **labels), "rows": now.total("rows", **labels)},
    }


def truth(view: View, labels: Mapping[str, str]) -> dict[str, Any]:
    """Calibration over all outcomes since the server started, and scores over time."""
    now = view.samples[-1]
    covered, counted = (
        now.by("outcome_covered_rows", "level", **labels),
        now.by("outcome_interval_rows", "level", **labels),
    )
    pairs = {shared: _pairs(now, shared, labels) for shared in now.by("pairs", "shared", **labels)}
    return {
        "outcomes": now.by("outcomes", "result", **labels),
        "waiting": now.total("outcome_predictions_stored"),
        "coverage": [
            {"level": float(level), "covered": ratio(covered.get(level, 0.0), rows), "rows": rows}
            for level, rows in sorted(counted.items(), key=lambda item: float(item[0]))
        ],
        "pit": list(now.histogram("pit", **labels).counts[:_PIT_BARS]),
        "nll": now.histogram("outcome_nll", **labels).mean,
        "crps": now.histogram("outcome_crps", **labels).mean,
        "pairs": pairs,
        "series": [
            {key: each[key] for key in ("time", "nll", "crps", "outcomes")} for each in series(view.points, labels)
        ],
    }


def versions(sample: Sample) -> list[dict[str, str]]:
    """Models and versions that are loaded or have been called."""
    found = {(named["model"], named["version"]) for named, numbers in sample.series("model_info") if numbers[0]}
    return [{"model": model, "version": version} for model, version in sorted(found)]


def recent(samples: Sequence[Sample], seconds: float) -> Sample:
    """The oldest sample of the last `seconds`; if that is the newest one, the sample before it, if there is one."""
    since = samples[-1].time - seconds
    return next((each for each in samples[:-1] if each.time >= since), samples[-2] if len(samples) > 1 else samples[-1])


def _pairs(now: Sample, shared: str, labels: Mapping[str, str]) -> dict[str, Any]:
    count = now.total("pairs", shared=shared, **labels)
    signed = now.by("pair_products", "sign", shared=shared, **labels)
    squares = now.total("pair_squares", shared=shared, **labels)
    return {
        "pairs": count,
        "measured": ratio(signed.get("positive", 0.0) - signed.get("negative", 0.0), count),
        "standard_error": ratio(squares**0.5, count),
        "served": ratio(now.total("pair_served", shared=shared, **labels), count),
    }


def _between(now: Sample, then: Sample, family: str, labels: Mapping[str, str]) -> Histogram:
    return now.histogram(family, **labels).since(then.histogram(family, **labels))
