"""Call records as a server writes them, from real runs of a small model, without a server."""

from pathlib import Path

import numpy as np

from serving.engines.embedded import LoadedModel, load_model
from serving.engines.interface import ModelVersion, Times
from serving.outcomes.store import storage_sampler
from serving.telemetry.record import CallRecord
from tests.support.onnx_models import SMALL, Recipe, write_version

WALL_OFFSET = 1_700_000_000.0


def load_small(root: Path, recipe: Recipe = SMALL) -> LoadedModel:
    return load_model(write_version(root, 1, recipe) / "model.onnx", "demo", 1, (1,))


def inputs_of(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Candidates for one user, with SMALL's features."""
    random = np.random.default_rng(seed)
    return {
        "user_id": np.full(rows, random.integers(60), np.int64),
        "hour": np.full(rows, random.uniform(0, 24), np.float32),
        "item_id": random.integers(0, 250, rows),
        "duration": random.uniform(0, 30, rows).astype(np.float32),
    }


def answered(model: LoadedModel, rows: int = 3, request_id: str = "", seed: int = 0) -> CallRecord:
    """The record of a Predict call that took 7 ms: 1 ms in the queue, 2 waiting for more rows, 3 computing, 0.5
    encoding."""
    record = CallRecord("Predict", 1000.0)
    record.times = Times(1000.0005, 1000.0015, 1000.0035, 1000.0065, batch_rows=rows + 2)
    record.answered = 1000.007
    record.model, record.rows, record.request_id = model, rows, request_id
    record.is_stored = storage_sampler(rate=1.0)(request_id)
    record.inputs = inputs_of(rows, seed)
    record.outputs = model.run(record.inputs, model.outputs)
    record.code, record.is_sampled = "OK", True
    return record


def failed(code: str, details: str = "", model: ModelVersion | None = None, request_id: str = "") -> CallRecord:
    record = CallRecord("Predict", 1000.0)
    record.answered = 1000.001
    record.code, record.details, record.model, record.request_id = code, details, model, request_id
    return record
