"""What is stored of a call, who gets it, and what happens when it is too much."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ghostless.contract import metadata
from serving.engines.batcher import BatchLimits
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.record import CallRecord
from serving.telemetry.recorder import Recorder
from tests.serving.telemetry.test_uncertainty import answer
from tests.support.observed import DEMO, RecordingSink
from tests.support.running import FakeEngine
from tests.support.waiting import eventually


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


def call(recorder: Recorder, rows: int = 3, seed: int = 0) -> CallRecord:
    """An answered one."""
    record = CallRecord("Predict", 10.0, rows=rows, model=FakeEngine(BatchLimits(1, 1, 1)).model)
    recorder.begin(record, ("mean",))
    record.outputs = answer(rows, seed)
    del record.outputs[metadata.UNKNOWN_IDS]
    recorder.answered(record)
    return record


def value(metrics: ServerMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"ghostless_{name}", labels) or 0.0


def test_sinks_get_every_record_once_and_are_closed(metrics: ServerMetrics) -> None:
    sinks = [RecordingSink(), RecordingSink()]
    recorder = Recorder(metrics, sinks, interval_s=0.01)
    recorder.start()
    records = [call(recorder, seed=seed) for seed in range(50)]
    recorder.stop()
    for sink in sinks:
        assert sink.records == records
        assert sink.closed
    assert value(metrics, "rows_total", **DEMO) == 150


def test_a_sink_that_fails_costs_nobody_else(metrics: ServerMetrics, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordingSink):
        def take(self, records: Sequence[CallRecord], wall_offset: float) -> None:
            raise OSError("no space left")

    good = RecordingSink()
    recorder = Recorder(metrics, [Broken(), good])
    record = call(recorder)
    recorder.stop()
    assert good.records == [record]
    assert "Broken failed" in caplog.text


def test_requests_are_counted_at_once_and_rows_when_looked_at(metrics: ServerMetrics) -> None:
    recorder = Recorder(metrics)
    call(recorder)
    assert value(metrics, "requests_total", method="Predict", code="OK", **DEMO) == 1
    assert value(metrics, "rows_total", **DEMO) == 0
    recorder.flush()
    assert value(metrics, "rows_total", **DEMO) == 3


def test_too_much_to_look_at_is_dropped_and_said_but_still_counted(metrics: ServerMetrics) -> None:
    recorder = Recorder(metrics, max_backlog_rows=100)
    for seed in range(10):
        call(recorder, rows=40, seed=seed)
    recorder.flush()
    dropped = value(metrics, "observations_dropped_total")
    assert 0 < dropped < 10
    assert value(metrics, "rows_total", **DEMO) == 40 * (10 - dropped)
    assert value(metrics, "requests_total", method="Predict", code="OK", **DEMO) == 10
    call(recorder)
    recorder.flush()
    assert value(metrics, "observations_dropped_total") == dropped


def test_the_graph_is_asked_for_what_is_needed_besides_what_was_asked_for(metrics: ServerMetrics) -> None:
    offered = ("mean", "quantiles", "bins", "cdf", "aleatoric", "epistemic", "logit_variance")
    sinks = [RecordingSink(frozenset({"cdf"}))]

    def asked(outputs: tuple[str, ...], request_id: str, uncertainty_rate: float) -> tuple[str, ...]:
        recorder = Recorder(metrics, sinks, uncertainty_rate=uncertainty_rate)
        model = replace(FakeEngine(BatchLimits(1, 1, 1)).model, outputs=outputs)
        return recorder.begin(CallRecord("Predict", 10.0, model=model, request_id=request_id), ("mean",))

    uncertainty = ("aleatoric", "epistemic", "logit_variance")
    assert asked(offered, "", 1.0) == ("mean", *uncertainty)
    assert asked(offered, "stored", 1.0) == ("mean", "cdf", *uncertainty)
    # Nobody looks at the uncertainty of this one, so the graph need not compute what only that takes.
    assert asked(offered, "stored", 0.0) == ("mean", "cdf")
    # A model without uncertainty is asked for none.
    assert asked(("mean", "quantiles"), "stored", 1.0) == ("mean",)


def test_gauges_are_read_at_every_look(metrics: ServerMetrics) -> None:
    looks: list[int] = []
    recorder = Recorder(metrics, on_interval=lambda: looks.append(1), interval_s=0.01)
    recorder.start()
    eventually(lambda: len(looks) >= 3, "three looks")
    recorder.stop()


def test_the_uncertainty_of_a_share_of_answers_is_looked_at_and_counted_as_such(metrics: ServerMetrics) -> None:
    recorder = Recorder(metrics, uncertainty_rate=0.25)
    for seed in range(400):
        call(recorder, seed=seed)
    recorder.stop()
    sampled = value(metrics, "uncertainty_rows_total", **DEMO)
    # Five standard deviations of a fair draw on either side.
    assert 57 * 3 < sampled < 143 * 3
    assert value(metrics, "epistemic_share_count", **DEMO) == sampled
    assert value(metrics, "rows_total", **DEMO) == 400 * 3


def test_of_more_rows_than_can_be_looked_at_a_share_is_drawn(
    metrics: ServerMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("serving.telemetry.recorder.time.monotonic", lambda: now)
    recorder = Recorder(metrics, uncertainty_rows_per_s=3000)
    for seed in range(100):
        call(recorder, rows=120, seed=seed)
    assert recorder._drawn_share == 1.0
    now = 101.0
    recorder.flush()
    assert value(metrics, "uncertainty_rows_total", **DEMO) == 12_000
    assert recorder._drawn_share == pytest.approx(0.25)
    now = 102.0
    recorder.flush()
    assert recorder._drawn_share == 1.0, "nothing came meanwhile"


def test_an_answer_that_nobody_looks_at_leaves_no_arrays_behind(metrics: ServerMetrics) -> None:
    sink = RecordingSink(frozenset({"cdf"}))
    recorder = Recorder(metrics, [sink], uncertainty_rate=0.0, max_backlog_rows=100)
    features = {"item_id": np.arange(90)}
    for request_id in ("", "stored", "", ""):
        model = FakeEngine(BatchLimits(1, 1, 1)).model
        record = CallRecord("Predict", 10.0, model=model, request_id=request_id, inputs=features, rows=90)
        recorder.begin(record, ("mean",))
        record.outputs = {"mean": np.zeros(90), "cdf": np.zeros((90, 4))}
        recorder.answered(record)
    recorder.flush()
    # Nor do its rows count against what may lie about: only the fourth came after that of the one that is stored.
    assert [(record.request_id, set(record.outputs)) for record in sink.records] == [("", set()), ("stored", {"cdf"})]
    assert not any(record.inputs for record in sink.records)


def test_features_stay_with_every_record_where_a_sink_needs_them(metrics: ServerMetrics) -> None:
    class NeedsInputs(RecordingSink):
        def needs_inputs(self, stored: bool, sampled: bool) -> bool:
            return True

    sink = NeedsInputs()
    recorder = Recorder(metrics, [sink], uncertainty_rate=0.0)
    features = {"item_id": np.arange(3)}
    record = CallRecord("Predict", 10.0, model=FakeEngine(BatchLimits(1, 1, 1)).model, inputs=features, rows=3)
    assert recorder.begin(record, ("mean",)) == ("mean",)
    record.outputs = {"mean": np.zeros(3)}
    recorder.answered(record)
    recorder.flush()
    assert sink.records[0].inputs is features
    assert not sink.records[0].outputs


def test_calls_of_several_models_and_methods_are_told_apart(metrics: ServerMetrics) -> None:
    recorder = Recorder(metrics)
    model = FakeEngine(BatchLimits(1, 1, 1)).model
    other = replace(model, version=2)
    for method, served, code in [
        ("Predict", model, "OK"),
        ("Predict", other, "OK"),
        ("ModelInfer", model, "OK"),
        ("Predict", None, "NOT_FOUND"),
        ("Predict", model, "OK"),
    ]:
        record = CallRecord(method, 10.0, model=served, rows=3 if served else 0)
        if served is None:
            recorder.end(record, code)
        else:
            recorder.begin(record, ("mean",))
            record.outputs = answer(3, 0)
            recorder.answered(record)
    recorder.flush()
    newer = {**DEMO, "version": "2"}
    none = dict.fromkeys(DEMO, "")
    assert value(metrics, "rows_total", **DEMO) == 9
    assert value(metrics, "rows_total", **newer) == 3
    counts = [("Predict", DEMO, 2), ("Predict", newer, 1), ("ModelInfer", DEMO, 1), ("Predict", none, 1)]
    for method, labels, count in counts:
        assert value(metrics, "request_seconds_count", method=method, **labels) == count
