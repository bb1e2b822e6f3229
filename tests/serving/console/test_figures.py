"""Figures from samples that were made by hand, where each is known."""

import json
from itertools import pairwise
from typing import Any

import pytest

from serving.console.alarms import alarms
from serving.console.figures import Histogram, History, Sample, View
from serving.console.live import interval, live, series, summarise, truth

LABELS = ("model", "version")
ONE = ("demo", "1")


def family(kind: str, labels: tuple[str, ...], series: list[Any], bounds: tuple[float, ...] = ()) -> dict[str, Any]:
    return {"kind": kind, "labels": labels, "bounds": bounds, "series": series}


def sample(time: float, requests: float, slow: float = 0.0, **families: Any) -> Sample:
    """`requests` calls so far, of which `slow` took 0.05 to 0.1 s and the others up to 0.01 s."""
    counted = [0.0, requests - slow, 0.0, slow, 0.0]
    values = {
        "requests": family("counter", ("code", *LABELS), [[("OK", *ONE), [requests]]]),
        "request_seconds": family("histogram", LABELS, [[ONE, counted]], (0.01, 0.05, 0.1)),
        "ready": family("gauge", (), [[(), [1.0]]]),
        "workers_configured": family("gauge", (), [[(), [1.0]]]),
        "model_info": family("gauge", LABELS, [[ONE, [1.0]], [("demo", "2"), [0.0]]]),
        **families,
    }
    return Sample(time, {f"ghostless_{name}": value for name, value in values.items()})


def view(*samples: Sample) -> View:
    return View(samples, [summarise(now, then) for then, now in pairwise(samples)])


def test_rates_and_percentiles_between_two_samples() -> None:
    figures = interval(sample(110, 300, slow=50), sample(100, 100), {"model": "demo"})
    assert figures["requests_per_s"] == pytest.approx(20)
    assert figures["p50_s"] == pytest.approx(0.01 * 100 / 150)
    assert 0.05 < figures["p95_s"] < 0.1
    assert figures["slow_share"] == pytest.approx(0.25)
    assert interval(sample(110, 300), sample(100, 100), {"model": "other"})["requests_per_s"] == 0


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert Histogram((1.0, 2.0), 0.0, (0.0, 0.0, 5.0)).quantile(0.5) == 2.0
    assert Histogram((1.0, 2.0), 0.0, (0.0, 0.0, 0.0)).quantile(0.5) is None


def test_live_lists_loaded_versions_only() -> None:
    found = live(view(sample(100, 0), sample(105, 50)), {})
    assert [each["version"] for each in found["versions"]] == ["1"]
    assert [each["requests_per_s"] for each in found["series"]] == [10.0]
    one = live(view(sample(100, 0), sample(105, 50)), {"model": "demo", "version": "1"})
    assert [each["requests_per_s"] for each in one["series"]] == [10.0]
    assert live(view(sample(100, 0), sample(105, 50)), {"model": "demo", "version": "2"})["series"] == []


@pytest.mark.parametrize("number", [0, 1, 180, 181, 359, 720])
def test_a_long_series_is_thinned_and_keeps_its_end(number: int) -> None:
    points = [{("", ""): {"time": float(time)}} for time in range(number)]
    shown = series(points, {})
    assert len(shown) <= 180
    assert [each["time"] for each in shown[-1:]] == [number - 1.0][: bool(number)]


def test_truth_has_coverage_and_pairs() -> None:
    content: dict[str, Any] = {
        "outcome_interval_rows": family(
            "counter", ("level", *LABELS), [[("0.9", *ONE), [200.0]], [("0.5", *ONE), [200.0]]]
        ),
        "outcome_covered_rows": family(
            "counter", ("level", *LABELS), [[("0.9", *ONE), [150.0]], [("0.5", *ONE), [100.0]]]
        ),
        "pairs": family("counter", ("shared", *LABELS), [[("context", *ONE), [100.0]]]),
        "pair_products": family(
            "counter",
            ("shared", "sign", *LABELS),
            [[("context", "positive", *ONE), [30.0]], [("context", "negative", *ONE), [10.0]]],
        ),
        "pair_squares": family("counter", ("shared", *LABELS), [[("context", *ONE), [25.0]]]),
        "pair_served": family("counter", ("shared", *LABELS), [[("context", *ONE), [18.0]]]),
    }
    found = truth(view(sample(100, 0, **content)), {})
    assert found["coverage"] == [
        {"level": 0.5, "covered": 0.5, "rows": 200.0},
        {"level": 0.9, "covered": 0.75, "rows": 200.0},
    ]
    assert found["pairs"]["context"] == {"pairs": 100.0, "measured": 0.2, "standard_error": 0.05, "served": 0.18}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"ready": family("gauge", (), [[(), [0.0]]])}, "GhostlessNoReadyModel"),
        ({"workers_configured": family("gauge", (), [[(), [4.0]]])}, "GhostlessWorkersNotReady"),
        ({"worker_restarts": family("counter", ("reason",), [[("hung",), [1.0]]])}, "GhostlessWorkerRestarts"),
        ({"worker_restarts": family("counter", ("reason",), [[("hung",), [7.0]]])}, "GhostlessWorkerCrashLoop"),
        ({"rejected": family("counter", ("reason",), [[("queue",), [90.0]]])}, "GhostlessRejecting"),
        (
            {"model_wanted_version": family("gauge", ("model",), [[("demo",), [2.0]]])},
            "GhostlessWantedVersionNotServed",
        ),
        ({"model_version_failed": family("gauge", LABELS, [[("demo", "2"), [1.0]]])}, "GhostlessVersionFailed"),
        (
            {"certificate_expiry_seconds": family("gauge", ("file",), [[("crl",), [5.0]]])},
            "GhostlessCertificateExpiresNow",
        ),
        ({"endpoint_up": family("gauge", ("endpoint",), [[("a",), [0.0]]])}, "GhostlessNoEndpoint"),
        (
            {
                "uncertainty_rows": family("counter", LABELS, [[ONE, [1000.0]]]),
                "out_of_distribution_rows": family("counter", LABELS, [[ONE, [30.0]]]),
            },
            "GhostlessOutOfDistributionSurge",
        ),
        (
            {
                "outcome_interval_rows": family("counter", ("level", *LABELS), [[("0.9", *ONE), [2000.0]]]),
                "outcome_covered_rows": family("counter", ("level", *LABELS), [[("0.9", *ONE), [1500.0]]]),
            },
            "GhostlessCoverageDrift",
        ),
    ],
)
def test_an_alarm_and_its_runbook(changes: dict[str, Any], name: str) -> None:
    healthy = view(sample(100, 0), sample(105, 1000))
    assert alarms(healthy, {})["alarms"] == []
    found = alarms(view(sample(100, 0), sample(105, 1000, **changes)), {name: "do this"})["alarms"]
    assert [(each["name"], each["runbook"]) for each in found] == [(name, "do this")]


def test_slow_answers_are_an_alarm() -> None:
    found = alarms(view(sample(100, 0), sample(105, 1000, slow=400)), {})["alarms"]
    assert [each["name"] for each in found] == ["GhostlessLatencyBudgetBurn"]


def test_a_history_samples_when_it_is_viewed_and_not_twice_at_once() -> None:
    now, reads = [1000.0], []

    def read() -> bytes:
        reads.append(now[0])
        return json.dumps({}).encode()

    history = History(read, summarise, lambda: now[0])
    assert len(history.view().samples) == 1
    assert len(history.view().samples) == 1
    now[0] += 3
    assert [each.time for each in history.view().samples] == [1000.0, 1003.0]
    assert len(history.view().points) == 1
    assert reads == [1000.0, 1003.0]
