"""From the acquisition log to a trained model: label the rows, name the folder, train."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghostless.commands.main import main
from serving.acquisition.files import FileLimits
from serving.acquisition.log import AcquisitionLimits, AcquisitionLog
from serving.telemetry.metrics import ServerMetrics
from tests.support.call_records import WALL_OFFSET, answered, load_small

SCHEMA = """
[target]
name = "watch_ratio"
unit = "1"
low = 0.0
high = 3.0
[[features]]
name = "user_id"
kind = "id"
role = "context"
embedding = 4
[[features]]
name = "hour"
kind = "number"
role = "context"
type = "float32"
[[features]]
name = "item_id"
kind = "id"
embedding = 4
[[features]]
name = "duration"
kind = "bucket"
type = "float32"
embedding = 4
buckets = 5
"""


def test_acquired_rows_are_labelled_and_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, metrics = load_small(tmp_path / "models"), ServerMetrics().logs
    limits, files = AcquisitionLimits(400), FileLimits(10**9, 1e9, max_files=10)
    log = AcquisitionLog(tmp_path / "log", 0.1, limits, files, metrics)
    log.take([answered(model, rows=30, seed=seed) for seed in range(40)], WALL_OFFSET)
    log.close()
    folder = tmp_path / "log" / "demo" / "1"
    random = np.random.default_rng(0)
    for file in folder.glob("*.parquet"):
        table = pq.read_table(file)
        labels = pa.array(random.uniform(0, 3, table.num_rows), pa.float32())
        pq.write_table(table.append_column("watch_ratio", labels), file)
    (tmp_path / "schema.toml").write_text(SCHEMA)

    options = ["--data", str(folder), "--schema", str(tmp_path / "schema.toml"), "--out", str(tmp_path / "run")]
    brief = ["--epochs", "1", "--batch-rows", "64", "--head", "cr", "--bins", "10", "--calibration", "0", "--json"]
    monkeypatch.setattr(sys, "argv", ["ghostless", "train", *options, *brief])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    figures = json.loads(capsys.readouterr().out)
    assert figures["train_rows"] + figures["rows"] == 400
    assert 1.5 < figures["nll"] < 4.0
