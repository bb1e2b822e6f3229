"""Exports, loads and runs a model with a very large id table."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.graph import timing
from export import publish, rows
from export.graph import Networks
from export.options import ExportOptions
from ghostless.contract import repository
from learning.checkpoint import Checkpoint, build_model
from learning.config import ModelConfig, TrainConfig
from learning.data.encoding import Encoding
from learning.schema import Feature, Schema, Target

IDS = 20_000_000
WIDTH = 16


@dataclass(frozen=True)
class LargeModel:
    error: float
    export_s: float
    load_s: float
    peak_mb: float
    file_mb: float


def measure(root: Path, ids: int = IDS) -> LargeModel:
    """Export an untrained QR-VBLL model with `ids` user ids, verify it like every export, and load it in a new
    process."""
    features = (Feature("user_id", "id", "context", embedding=WIDTH), Feature("video_id", "id", embedding=WIDTH))
    schema = Schema(features, Target("watch_ratio", "ratio", 0.0, 3.0))
    vocabularies = {"user_id": np.arange(ids), "video_id": np.arange(1000)}
    encoding = Encoding(
        schema=schema,
        vocabularies=vocabularies,
        counts={name: np.ones(len(known), np.int64) for name, known in vocabularies.items()},
        edges={},
        knots={},
        centres={},
        spreads={},
        target_sample=np.linspace(0.0, 3.0, 10_000, dtype=np.float32),
    )
    config = ModelConfig()
    model = build_model(config, encoding).eval()
    checkpoint = Checkpoint(model, encoding, config, TrainConfig(), "generated", "generated")
    start = time.perf_counter()
    version, report = publish.export_model(Networks.ensemble([checkpoint]), "large", root, ExportOptions())
    export_s = time.perf_counter() - start
    path = repository.find(root, "large").model_file(version)
    feed = rows.fed(rows.plausible(encoding, 256, 0))
    del model, checkpoint
    peak_mb, load_s = timing.memory_mb(path, feed)
    error = report.largest_error
    assert error is not None, "nothing is drawn here"
    size = sum(file.stat().st_size for file in path.parent.iterdir())
    return LargeModel(error, export_s, load_s, peak_mb, size / 1e6)
