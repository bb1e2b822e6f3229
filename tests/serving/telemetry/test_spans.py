import subprocess
import sys
import time
from pathlib import Path

import pytest

from ghostless.contract.errors import ConfigError
from loadtest.server_process import free_port
from serving.engines.embedded import LoadedModel
from serving.telemetry.record import CallRecord
from serving.telemetry.tracing import is_configured, open_tracing
from tests.support.call_records import WALL_OFFSET, answered, failed, load_small
from tests.support.collector import attributes, collecting

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    return load_small(tmp_path)


def with_context(record: CallRecord, traceparent: str, **others: str) -> CallRecord:
    record.metadata = (("user-agent", "test"), ("traceparent", traceparent), *others.items())
    return record


def test_a_sampled_trace_is_continued_with_facade_queue_and_engine(model: LoadedModel) -> None:
    with collecting() as collector:
        sink = open_tracing(collector.endpoint, rate=0.0)
        sink.take([with_context(answered(model, rows=4, request_id="abc"), SAMPLED, tracestate="a=1")], WALL_OFFSET)
        sink.close()
        spans = {span.name: span for span in collector.spans}
    assert spans.keys() == {"ghostless.v1.PredictionService/Predict", "queue", "engine"}
    facade = spans["ghostless.v1.PredictionService/Predict"]
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    assert facade.parent_span_id.hex() == PARENT
    assert facade.trace_state == "a=1"
    assert {spans[name].parent_span_id for name in ("queue", "engine")} == {facade.span_id}
    took = {name: (span.end_time_unix_nano - span.start_time_unix_nano) * 1e-9 for name, span in spans.items()}
    assert took[facade.name] == pytest.approx(0.007, abs=1e-6)
    assert took["queue"] == pytest.approx(0.003, abs=1e-6)
    assert took["engine"] == pytest.approx(0.003, abs=1e-6)
    assert facade.start_time_unix_nano * 1e-9 == pytest.approx(WALL_OFFSET + 1000, abs=1e-5)
    assert attributes(facade) == {
        "rpc.system": "grpc",
        "rpc.service": "ghostless.v1.PredictionService",
        "rpc.method": "Predict",
        "rpc.grpc.status_code": 0,
        "ghostless.rows": 4,
        "ghostless.request_id": "abc",
        "ghostless.model": "demo",
        "ghostless.version": 1,
    }
    assert attributes(spans["engine"]) == {"ghostless.batch_rows": 6}
    assert collector.resource["service.name"] == "ghostless"


def test_what_the_caller_does_not_sample_is_not_sent(model: LoadedModel) -> None:
    with collecting() as collector:
        sink = open_tracing(collector.endpoint, rate=1.0)
        sink.take([with_context(answered(model), UNSAMPLED)] * 5, WALL_OFFSET)
        sink.close()
        assert collector.spans == []


@pytest.mark.parametrize("broken", ["", "00-0-0-01", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", "ä"])
def test_calls_without_usable_context_are_sampled_by_rate(model: LoadedModel, broken: str) -> None:
    with collecting() as collector:
        sink = open_tracing(collector.endpoint, rate=0.2)
        sink.take([with_context(answered(model), broken)] * 300, WALL_OFFSET)
        sink.close()
        facades = [span for span in collector.spans if "/" in span.name]
    # 300 draws of 0.2: six standard deviations to either side.
    assert 18 <= len(facades) <= 102
    assert len({span.trace_id for span in facades}) == len(facades)
    assert not any(span.parent_span_id for span in facades)


def test_an_error_is_one_span_that_says_so() -> None:
    with collecting() as collector:
        sink = open_tracing(collector.endpoint, rate=1.0)
        sink.take([failed("NOT_FOUND", "no model 'x'")], WALL_OFFSET)
        sink.close()
        (span,) = collector.spans
    assert (span.status.code, span.status.message) == (2, "NOT_FOUND: no model 'x'")
    assert attributes(span)["rpc.grpc.status_code"] == 5


def test_opentelemetrys_own_variables_name_collector_and_service(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "ranking")
        assert is_configured("")
        sink = open_tracing("", rate=1.0)
        sink.take([answered(model)], WALL_OFFSET)
        sink.close()
        assert len(collector.spans) == 3
        assert collector.resource["service.name"] == "ranking"


def test_off_unless_configured() -> None:
    assert not is_configured("", {})
    assert is_configured("http://127.0.0.1:4317", {})
    assert is_configured("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4317"})
    assert not is_configured("http://127.0.0.1:4317", {"OTEL_SDK_DISABLED": "true"})


def test_a_collector_that_is_down_holds_nobody_up(model: LoadedModel) -> None:
    sink = open_tracing(f"http://127.0.0.1:{free_port()}", rate=1.0)
    began = time.monotonic()
    for _ in range(20):
        sink.take([answered(model)] * 200, WALL_OFFSET)
    sink.close()
    assert time.monotonic() - began < 20


def test_the_server_loads_opentelemetry_only_where_it_is_used() -> None:
    script = (
        "import sys; import serving.telemetry.tracing as tracing; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serving.telemetry.spans", None)
    with pytest.raises(ConfigError, match=r"pip install 'ghostless-server\[otel\]'"):
        open_tracing("http://127.0.0.1:4317", 1.0)
