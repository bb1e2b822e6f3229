import os
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ghostless.contract import metadata
from serving.acquisition.files import FileLimits
from serving.acquisition.log import AcquisitionLimits, AcquisitionLog
from serving.engines.embedded import LoadedModel
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.record import CallRecord
from tests.support.call_records import WALL_OFFSET, answered, failed, load_small
from tests.support.full_disk import file_size_limit
from tests.support.waiting import eventually

GAMMA = 0.1
ROOMY = FileLimits(max_bytes=10**9, max_age_s=1e9, max_files=100)


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    return load_small(tmp_path / "models")


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


def open_log(
    folder: Path, metrics: ServerMetrics, rows: int = 10, files: FileLimits = ROOMY, interval_s: float = 1e9
) -> AcquisitionLog:
    return AcquisitionLog(folder, GAMMA, AcquisitionLimits(rows, interval_s), files, metrics.logs)


def counted(metrics: ServerMetrics, result: str) -> float:
    return metrics.registry.get_sample_value("ghostless_acquisition_rows_total", {"result": result}) or 0.0


def has_written(metrics: ServerMetrics, rows: int) -> bool:
    return counted(metrics, "written") >= rows


def scores_of(record: CallRecord) -> np.ndarray:
    return record.outputs[metadata.EPISTEMIC] + GAMMA * record.outputs[metadata.ALEATORIC]


def test_the_best_rows_of_an_interval_are_written_with_features_and_prediction(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics
) -> None:
    log = open_log(tmp_path / "log", metrics)
    records = [answered(model, rows=40, request_id=f"r{seed}", seed=seed) for seed in range(30)]
    for start in range(0, 30, 7):
        log.take([*records[start : start + 7], failed("NOT_FOUND")], WALL_OFFSET)
    assert not (tmp_path / "log").exists()
    log.close()

    (file,) = (tmp_path / "log" / "demo" / "1").iterdir()
    rows = pq.read_table(file).to_pylist()
    best = np.sort(np.concatenate([scores_of(record) for record in records]))[::-1][:10]
    assert [row["ghostless_score"] for row in rows] == pytest.approx(best.tolist(), rel=1e-6)
    assert counted(metrics, "written") == 10
    for row in rows:
        record = records[int(row["ghostless_request_id"][1:])]
        place = row["ghostless_row"]
        assert {name: row[name] for name in record.inputs} == pytest.approx(
            {name: column[place].item() for name, column in record.inputs.items()}
        )
        assert row["ghostless_mean"] == record.outputs[metadata.MEAN][place]
        assert row["ghostless_quantiles"] == record.outputs[metadata.QUANTILES][place].tolist()
        assert row["ghostless_time"].timestamp() == pytest.approx(WALL_OFFSET + 1000.007, abs=1e-5)
    described = pq.read_schema(file).metadata
    assert described[b"ghostless.model"] == b"demo"


def test_only_answers_that_were_drawn_are_looked_at(tmp_path: Path, model: LoadedModel, metrics: ServerMetrics) -> None:
    log = open_log(tmp_path / "log", metrics)
    records = [answered(model, rows=40, request_id=f"r{seed}", seed=seed) for seed in range(20)]
    for record in records[1::2]:
        record.is_sampled = False
    log.take(records, WALL_OFFSET)
    log.close()
    (file,) = (tmp_path / "log" / "demo" / "1").iterdir()
    best = np.sort(np.concatenate([scores_of(record) for record in records[::2]]))[::-1][:10]
    scores = [row["ghostless_score"] for row in pq.read_table(file).to_pylist()]
    assert scores == pytest.approx(best.tolist(), rel=1e-6)


def test_the_same_row_asked_for_again_and_again_is_written_once(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics
) -> None:
    log = open_log(tmp_path / "log", metrics, rows=50)
    record = answered(model, rows=8)
    for _ in range(20):
        log.take([record] * 5, WALL_OFFSET)
    log.close()
    assert counted(metrics, "written") == 8


def test_requests_without_the_variances_are_passed_over(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics
) -> None:
    log = open_log(tmp_path / "log", metrics)
    assert log.needed_outputs(stored=False, sampled=True) == {metadata.MEAN, metadata.ALEATORIC, metadata.EPISTEMIC}
    assert log.needed_outputs(stored=True, sampled=False) == frozenset()
    record = answered(model)
    record.outputs = {metadata.MEAN: record.outputs[metadata.MEAN]}
    log.take([record], WALL_OFFSET)
    log.close()
    assert not (tmp_path / "log").exists()


def test_the_rate_is_bounded_by_interval(tmp_path: Path, model: LoadedModel, metrics: ServerMetrics) -> None:
    log = open_log(tmp_path / "log", metrics, rows=3, interval_s=0.2)
    began, seed = time.monotonic(), 0
    while time.monotonic() - began < 1.0:
        log.take([answered(model, rows=20, seed=seed)], WALL_OFFSET)
        seed += 1
    log.close()
    elapsed = time.monotonic() - began
    assert seed > 10
    assert 0 < counted(metrics, "written") <= 3 * (elapsed / 0.2 + 1)
    assert counted(metrics, "dropped") == 0


def test_files_rotate_by_size_appear_whole_and_are_bounded_in_number(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics
) -> None:
    log = open_log(tmp_path / "log", metrics, rows=5, files=FileLimits(1, 1e9, max_files=3), interval_s=0.0)
    folder = tmp_path / "log" / "demo" / "1"
    seen: set[Path] = set()
    for seed in range(8):
        log.take([answered(model, rows=20, seed=seed)], WALL_OFFSET)
        rows = 5 * (seed + 1)
        eventually(partial(has_written, metrics, rows), f"{rows} written rows")
        for file in folder.glob("*.parquet"):
            assert pq.read_metadata(file).num_rows == 5
            seen.add(file)
    log.close()
    assert len(seen) >= 8
    kept = sorted(folder.iterdir())
    assert kept == sorted(seen)[-3:]


def test_files_rotate_by_age_without_further_rows(tmp_path: Path, model: LoadedModel, metrics: ServerMetrics) -> None:
    log = open_log(tmp_path / "log", metrics, files=FileLimits(10**9, 0.3, max_files=3), interval_s=0.0)
    log.take([answered(model)], WALL_OFFSET)
    folder = tmp_path / "log" / "demo" / "1"
    eventually(lambda: list(folder.glob("*.parquet")), "a closed file")
    assert len(list(folder.glob("*.parquet"))) == 1
    log.close()


def test_a_file_that_a_dead_worker_left_half_written_is_removed(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics
) -> None:
    folder = tmp_path / "log" / "demo" / "1"
    folder.mkdir(parents=True)
    old, fresh = folder / ".20200101T000000-1-0001.parquet.part", folder / ".20990101T000000-1-0001.parquet.part"
    for part in (old, fresh):
        part.write_bytes(b"PAR1")
    os.utime(old, (1.6e9, 1.6e9))
    log = open_log(tmp_path / "log", metrics, files=FileLimits(10**9, 60.0, max_files=3))
    log.take([answered(model)], WALL_OFFSET)
    log.close()
    assert (old.exists(), fresh.exists()) == (False, True)


def test_a_disk_that_hangs_or_fails_costs_rows_and_no_time(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics
) -> None:
    (tmp_path / "log").write_text("a file where the folder should be")
    log = open_log(tmp_path / "log", metrics, rows=2, interval_s=0.0)
    for seed in range(20):
        log.take([answered(model, seed=seed)], WALL_OFFSET)
    log.close()
    assert counted(metrics, "written") == 0
    assert counted(metrics, "dropped") == 40


def rows_on_disk(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))


@pytest.mark.parametrize("limit", [100, 6000], ids=["when it is opened or appended to", "when it is closed"])
def test_rows_that_a_full_disk_did_not_take_are_not_counted_as_written(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    folder = tmp_path / "log"
    log = open_log(folder, metrics, rows=5, files=FileLimits(1 << 30, 1e9, max_files=9), interval_s=0.0)
    with file_size_limit(limit):
        for seed in range(8):
            log.take([answered(model, rows=20, seed=seed)], WALL_OFFSET)
        log.close()
    assert not list(folder.rglob("*.parquet"))
    assert not list(folder.rglob(".*")), "what was begun does not fill the disk further"
    assert (counted(metrics, "written"), counted(metrics, "dropped")) == (0, 40)
    assert metrics.registry.get_sample_value("ghostless_log_write_failures_total", {"log": "acquisition"})
    assert not any(record.exc_info for record in caplog.records), "no tracebacks"
    assert len(caplog.records) <= 3
    later = open_log(folder, metrics, rows=5)
    later.take([answered(model, rows=20)], WALL_OFFSET)
    assert counted(metrics, "written") == 0, "not before a file holds them"
    later.close()
    assert counted(metrics, "written") == rows_on_disk(folder) == 5


def test_rows_that_the_writer_has_no_room_for_are_dropped_at_once(
    tmp_path: Path, model: LoadedModel, metrics: ServerMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    slow = os.replace

    def replace(*arguments: Path) -> None:
        held.wait(30)
        slow(*arguments)

    monkeypatch.setattr(os, "replace", replace)
    log = open_log(tmp_path / "log", metrics, rows=2, files=FileLimits(1, 1e9, max_files=100), interval_s=0.0)
    records = [answered(model, seed=seed) for seed in range(30)]
    began = time.monotonic()
    for record in records:
        log.take([record], WALL_OFFSET)
    assert time.monotonic() - began < 10
    assert counted(metrics, "dropped") >= 2 * 20
    held.set()
    log.close()
    assert counted(metrics, "written") + counted(metrics, "dropped") == 60
