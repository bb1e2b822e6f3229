import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ghostless.contract.errors import ConfigError
from serving.engines.embedded import LoadedModel
from serving.telemetry import access_log
from serving.telemetry.access_log import ERRORS_PER_SECOND, AccessLog
from serving.telemetry.metrics import ServerMetrics
from tests.support.call_records import WALL_OFFSET, answered, failed, load_small
from tests.support.full_disk import file_size_limit
from tests.support.waiting import eventually


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    return load_small(tmp_path / "models")


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


def counted(metrics: ServerMetrics, result: str) -> float:
    return metrics.registry.get_sample_value("ghostless_access_log_lines_total", {"result": result}) or 0.0


def failures(metrics: ServerMetrics) -> float:
    return metrics.registry.get_sample_value("ghostless_log_write_failures_total", {"log": "access"}) or 0.0


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_line_says_who_asked_what_and_how_long_each_step_took(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics
) -> None:
    file = tmp_path / "access.log"
    log = AccessLog(str(file), rate=1.0, features=False, metrics=metrics.logs)
    log.take([answered(model, rows=4, request_id="abc")], WALL_OFFSET)
    log.close()
    (line,) = lines_of(file)
    assert line == {
        "time": "2023-11-14T22:30:00.000000+00:00",
        "method": "Predict",
        "code": "OK",
        "request_id": "abc",
        "model": "demo",
        "version": 1,
        "rows": 4,
        "batch_rows": 6,
        "seconds": {"total": 0.007, "queue": 0.001, "batch_wait": 0.002, "compute": 0.003, "encode": 0.0005},
        "pid": os.getpid(),
        "worker": 0,
    }


def test_features_are_logged_only_where_asked_for(tmp_path: Path, model: LoadedModel, metrics: ServerMetrics) -> None:
    file = tmp_path / "access.log"
    log = AccessLog(str(file), rate=1.0, features=True, metrics=metrics.logs)
    record = answered(model, rows=2)
    log.take([record], WALL_OFFSET)
    log.close()
    features = lines_of(file)[0]["features"]
    assert features["user_id"] == record.inputs["user_id"][0]
    assert features["item_id"] == record.inputs["item_id"].tolist()
    assert features["duration"] == pytest.approx(record.inputs["duration"].tolist())


def test_answers_are_sampled_and_errors_are_not(tmp_path: Path, model: LoadedModel, metrics: ServerMetrics) -> None:
    file = tmp_path / "access.log"
    log = AccessLog(str(file), rate=0.1, features=False, metrics=metrics.logs)
    answer, error = answered(model), failed("NOT_FOUND", "no model 'x'", request_id="lost")
    for _ in range(50):
        log.take([answer] * 100 + [error], WALL_OFFSET)
    log.close()
    lines = lines_of(file)
    errors = [line for line in lines if line["code"] == "NOT_FOUND"]
    assert len(errors) == 50
    assert errors[0]["details"] == "no model 'x'"
    assert (errors[0]["model"], errors[0]["version"], errors[0]["request_id"]) == ("", 0, "lost")
    assert errors[0]["seconds"] == {"total": 0.001}
    # 5,000 draws of 0.1: six standard deviations to either side.
    sampled = [line for line in lines if line["code"] == "OK"]
    assert 373 <= len(sampled) <= 627
    assert sampled[0]["sampled"] == 0.1


def test_a_storm_of_errors_is_bounded_and_what_is_left_out_is_told(
    tmp_path: Path, metrics: ServerMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "access.log"
    now = 100.0
    monkeypatch.setattr(access_log, "time", SimpleNamespace(monotonic=lambda: now))
    log = AccessLog(str(file), rate=0.0, features=False, metrics=metrics.logs)
    error = failed("UNAVAILABLE", "x" * 10_000)
    log.take([error] * 10_000, WALL_OFFSET)
    now = 101.0
    log.take([error], WALL_OFFSET)
    log.close()
    lines = lines_of(file)
    assert len(lines) == ERRORS_PER_SECOND + 1
    assert sum(line.get("left_out", 0) for line in lines) + len(lines) == 10_001
    assert all(len(line["details"]) == 300 for line in lines)


def test_a_log_that_was_moved_away_is_begun_anew(tmp_path: Path, model: LoadedModel, metrics: ServerMetrics) -> None:
    file, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    log = AccessLog(str(file), rate=1.0, features=False, metrics=metrics.logs)
    assert file.exists()
    os.replace(file, moved)
    log.take([answered(model, request_id="later")], WALL_OFFSET)
    log.close()
    assert moved.read_text() == ""
    assert [line["request_id"] for line in lines_of(file)] == ["later"]


def test_standard_output() -> None:
    script = (
        "from serving.telemetry.access_log import AccessLog\n"
        "from tests.support.call_records import failed\n"
        "from serving.telemetry.metrics import ServerMetrics\n"
        "log = AccessLog('-', 1.0, False, ServerMetrics().logs)\n"
        "log.take([failed('NOT_FOUND', 'no such model')] * 3, 0.0)\n"
        "log.close()\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [json.loads(line)["details"] for line in run.stdout.splitlines()] == ["no such model"] * 3


def test_a_file_that_can_not_be_written_is_said_at_the_start(tmp_path: Path, metrics: ServerMetrics) -> None:
    with pytest.raises(ConfigError, match=r"access log .*nowhere/access.log can't be written: No such file"):
        AccessLog(str(tmp_path / "nowhere" / "access.log"), 1.0, False, metrics.logs)


def test_a_full_disk_costs_whole_lines_which_are_counted(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "access.log"
    log = AccessLog(str(file), rate=1.0, features=False, metrics=metrics.logs)

    def write(calls: int) -> None:
        before = counted(metrics, "written") + counted(metrics, "dropped")
        log.take([answered(model, request_id=f"r{number}") for number in range(calls)], WALL_OFFSET)
        eventually(lambda: counted(metrics, "written") + counted(metrics, "dropped") == before + calls, "the lines")

    write(3)
    with file_size_limit(file.stat().st_size + 100):  # less than a line
        for _ in range(20):
            write(3)
            log._writer._idle()
    assert (counted(metrics, "written"), counted(metrics, "dropped"), failures(metrics)) == (3, 60, 20)
    assert len(lines_of(file)) == 3, "and no torn line"
    write(2)
    log.close()
    lines = lines_of(file)
    assert (len(lines), lines[3]["left_out"]) == (5, 60)
    assert counted(metrics, "written") == 5
    told = [record.message for record in caplog.records]
    assert told == [
        "cannot write the access log: File too large (1 failures); the next write will try again",
        "the access log is written again, after 20 failures",
    ]
    assert not any(record.exc_info for record in caplog.records), "no tracebacks"


def test_a_device_without_room_is_no_reason_to_stop(model: LoadedModel, metrics: ServerMetrics) -> None:
    log = AccessLog("/dev/full", rate=1.0, features=False, metrics=metrics.logs)
    log.take([answered(model)] * 5, WALL_OFFSET)
    log.close()
    assert (counted(metrics, "written"), counted(metrics, "dropped"), failures(metrics)) == (0, 5, 1)


def test_a_full_disk_under_standard_output_is_counted_by_line(tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from serving.telemetry.access_log import AccessLog\n"
        "from serving.telemetry.metrics import ServerMetrics\n"
        "from tests.support.call_records import failed\n"
        "metrics = ServerMetrics()\n"
        "log = AccessLog('-', 1.0, False, metrics.logs)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))\n"
        "log.take([failed('NOT_FOUND', 'no such model')] * 10, 0.0)\n"
        "log.close()\n"
        "value = metrics.registry.get_sample_value\n"
        "name, results = 'ghostless_access_log_lines_total', ('written', 'dropped')\n"
        "print([value(name, {'result': result}) for result in results], file=sys.stderr)\n"
    )
    with (tmp_path / "out").open("wb") as out:
        run = subprocess.run([sys.executable, "-c", script], stdout=out, stderr=subprocess.PIPE, text=True, check=True)
    whole = [line for line in (tmp_path / "out").read_text().split("\n")[:-1] if json.loads(line)]
    assert run.stderr.splitlines()[-1] == str([float(len(whole)), 10.0 - len(whole)])
    assert 0 < len(whole) < 10
