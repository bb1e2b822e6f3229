"""`ghostless bench observability` as a whole, in short: metrics against clients, drift, alerts, overhead."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.observability import stages
from benchmarks.observability.drift import threshold_of
from benchmarks.observability.traffic import DRIFTED, IN_SECONDS, USUAL, TrafficTotals, draw_outcomes, draw_rows, note
from ghostless.client import Prediction
from ghostless.commands.main import main
from loadtest.programs import find_program
from loadtest.server_process import BenchError
from loadtest.workload import find_model
from tests.support import onnx_models

# How the names of figures begin that depend on how busy this machine is; what came in the two seconds before the drift
# may be too little for the alerts to keep silent.
TIMED = ("p99 ", "median ", "throughput ", "cost of the uncertainty metrics", "alerts before")


@pytest.fixture(scope="module")
def programs() -> None:
    try:
        for name in ("prometheus", "h2load"):
            find_program(name)
    except BenchError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("programs")
def test_the_whole_bench_runs_and_judges(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = stages.ObservabilityPlan(requests=160, phase_s=2.0, rounds=8, latency_requests=50, passes=3)
    monkeypatch.setattr(stages, "QUICK", short)
    written, picture = tmp_path / "figures.json", tmp_path / "drift.png"
    options = ["--quick", "--repository", str(trained), "--json", str(written), "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", ["ghostless", "bench", "observability", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    figures = {figure["name"]: figure for figure in json.loads(written.read_text())["figures"]}
    assert bool(ended.value.code) == (not all(figure["ok"] for figure in figures.values()))
    exact = {name: figure for name, figure in figures.items() if not name.startswith(TIMED)}
    assert all(figure["ok"] for figure in exact.values()), capsys.readouterr().out
    assert len(exact) > 10
    assert {figure["bound"] for figure in figures.values()} >= {">= 0.95", "< 0.03", "<= 1.5"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_outcomes_are_drawn_from_what_was_predicted(trained: Path) -> None:
    model = find_model(trained, "")
    random = np.random.default_rng(0)
    outputs: dict[str, Any] = dict(model.infer(draw_rows(model, USUAL, 4000, random)))
    edges = np.linspace(0.0, 3.0, outputs["bins"].shape[1] + 1, dtype=np.float32)
    answer = Prediction("demo", 2, "", 4000, edges=edges, levels=np.array([0.05, 0.5, 0.95], np.float32), **outputs)
    usual, drifted = draw_outcomes(answer, USUAL, random), draw_outcomes(answer, DRIFTED, random)
    assert usual.min() >= 0.0
    assert usual.max() <= 3.0
    expected = (outputs["bins"] @ ((edges[:-1] + edges[1:]) / 2)).mean()
    assert usual.mean() == pytest.approx(expected, abs=0.05)
    assert drifted.mean() < usual.mean() - 0.2


def test_what_clients_note_is_worked_out_by_hand() -> None:
    quantiles = np.array([[0.1, 1.0, 2.0], [0.5, 0.6, 0.7]], np.float32)
    answer = Prediction(
        "demo",
        1,
        "",
        2,
        levels=np.array([0.05, 0.5, 0.95], np.float32),
        quantiles=quantiles,
        aleatoric=np.array([3.0, 1.0], np.float32),
        epistemic=np.array([1.0, 1.0], np.float32),
        logit_variance=np.array([0.2, 0.4], np.float32),
    )
    seen = TrafficTotals()
    note(seen, answer, np.array([2.0, 0.4], np.float32), threshold=0.3)
    assert (seen.requests, seen.rows, seen.out_of_distribution) == (1, 2, 1)
    assert seen.mean_share == pytest.approx((0.25 + 0.5) / 2)
    assert seen.coverage() == {"0.9": 0.5}


def test_drifted_rows_are_what_training_never_saw(trained: Path) -> None:
    model = find_model(trained, "")
    rows = draw_rows(model, DRIFTED, 100, np.random.default_rng(0)).feeds()
    usual = draw_rows(model, USUAL, 100, np.random.default_rng(0)).feeds()
    assert rows["duration_ms"].min() > 10 * usual["duration_ms"].max()
    for name in ("user_id", "video_id"):
        assert rows[name].min() > 1000 > usual[name].max()


def test_rows_in_another_unit_are_otherwise_as_usual(trained: Path) -> None:
    model = find_model(trained, "")
    rows = draw_rows(model, IN_SECONDS, 100, np.random.default_rng(0)).feeds()
    usual = draw_rows(model, USUAL, 100, np.random.default_rng(0)).feeds()
    np.testing.assert_allclose(rows["duration_ms"], usual["duration_ms"] / 1000)
    for name in ("user_id", "video_id"):
        np.testing.assert_array_equal(rows[name], usual[name])


def test_a_model_that_cannot_tell_is_refused(tmp_path: Path) -> None:
    onnx_models.write_version(tmp_path, 1)
    with pytest.raises(BenchError, match="export the model again"):
        threshold_of(find_model(tmp_path, ""))
