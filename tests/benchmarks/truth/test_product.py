"""Runs are trained once, found again by a later bench, and judged on rows that were not given to training."""

import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks.truth import product
from benchmarks.truth.judge import Forecast, judge
from benchmarks.truth.parts import Parts, split_off
from benchmarks.truth.product import Product
from benchmarks.truth.store import Saved, Store
from learning.config import TrainConfig
from learning.data.synthetic import SyntheticVideos
from learning.data.table import Table
from learning.evaluation import evaluate
from learning.training import Trainer
from tests.support.training import brief_training, small_model


@pytest.fixture
def parts() -> Parts:
    return split_off("tiny", SyntheticVideos(seed=0, users=30, items=20).sample(600, seed=1), 0)


class FakeTrainer:
    """Learns the marginal distribution, and warns in both ways that the product may."""

    trained: list[Table]

    def __init__(self, dataset: Table, data: str, model: object, config: TrainConfig, out: Path) -> None:
        self.dataset, self.config = dataset, config

    def run(self, report: Callable[[Any], None]) -> np.ndarray[Any, Any]:
        self.trained.append(self.dataset)
        warnings.warn("the range is too wide", stacklevel=1)
        logging.getLogger("learning").warning("few calibration rows")
        return np.quantile(self.dataset.target, np.linspace(0, 1, 101))


def predict_marginal(places: np.ndarray[Any, Any], rows: Table) -> dict[str, Any]:
    cdf = np.tile(np.linspace(0, 1, len(places)), (rows.rows, 1))
    answers = {"mean": np.full(rows.rows, places.mean())}
    answers |= dict.fromkeys(("epistemic", "candidate", "last_layer"), np.zeros(rows.rows))
    masked = {f"{name}/{key}": values for name in rows.schema.id_names for key, values in answers.items()}
    return {"knots": places, "cdf": cdf, **answers, **masked}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Table]:
    """The rows that every training received."""
    FakeTrainer.trained = []
    monkeypatch.setattr(product, "Trainer", FakeTrainer)
    monkeypatch.setattr(product, "predict", predict_marginal)
    monkeypatch.setattr(product, "target_notes", lambda checkpoint, clipped: ["what was clipped"])
    return FakeTrainer.trained


def test_a_later_bench_finds_the_run(tmp_path: Path, parts: Parts, trained: list[Table]) -> None:
    first = Product(Store(tmp_path), Console(quiet=True)).run(parts, "cr")
    again = Product(Store(tmp_path), Console(quiet=True)).run(parts, "cr")
    assert [rows.fingerprint() for rows in trained] == [parts.fitting.fingerprint()]
    assert again.judgement.crps == first.judgement.crps
    assert again.seconds == first.seconds
    assert again.warnings == first.warnings
    assert first.judgement.rows == parts.judged.rows
    assert first.judgement.ks < 0.15


def test_head_method_seed_and_rows_make_different_runs(tmp_path: Path, parts: Parts, trained: list[Table]) -> None:
    bench = Product(Store(tmp_path), Console(quiet=True))
    for _ in range(2):
        bench.run(parts, "cr")
        bench.run(parts, "qr")
        bench.run(parts, "cr", "deterministic")
        bench.run(parts, "cr", seed=1)
        bench.run(split_off("tiny", parts.fitting, 0), "cr")
    assert len(trained) == 5


def test_a_cut_off_run_is_trained_again(tmp_path: Path, parts: Parts, trained: list[Table]) -> None:
    Product(Store(tmp_path), Console(quiet=True)).run(parts, "cr")
    (folder,) = tmp_path.iterdir()
    (folder / "run.json").unlink()
    Product(Store(tmp_path), Console(quiet=True)).run(parts, "cr")
    assert len(trained) == 2


def test_warnings_of_training_are_stored(tmp_path: Path, parts: Parts, trained: list[Table]) -> None:
    said = Product(Store(tmp_path), Console(quiet=True)).run(parts, "cr").warnings
    assert {"the range is too wide", "few calibration rows"} <= set(said)


def test_a_run_of_other_code_is_reported(
    tmp_path: Path, parts: Parts, trained: list[Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    Product(Store(tmp_path), Console(quiet=True)).run(parts, "cr")
    monkeypatch.setattr(product, "product_code", lambda: "other")
    console = Console(record=True, width=200, file=io.StringIO())
    Product(Store(tmp_path), console).run(parts, "cr")
    assert "trained by other code" in console.export_text()


def test_a_store_gives_back_what_it_was_given(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.folder("x", "abc", TrainConfig())
    store.save(folder, Saved({"mean": np.arange(3.0)}, {"seconds": 1.5}))
    found = store.load(folder)
    assert found is not None
    np.testing.assert_array_equal(found.arrays["mean"], np.arange(3.0))
    assert found.facts == {"seconds": 1.5}
    assert store.load(store.folder("x", "abc", TrainConfig(seed=1))) is None


@pytest.mark.parametrize("head", ["cr", "qr"])
def test_a_real_checkpoint_answers_with_a_distribution(
    head: str, videos: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter against the product as it is: its answer passes the judge's checks."""
    checkpoint = Trainer(videos, "videos", small_model(head=head), brief_training()).run()
    expected = evaluate(checkpoint, videos).cdf
    # PyTorch can't answer any more: what is judged comes from the exported graph.
    monkeypatch.setattr(checkpoint.model, "phi", None)
    arrays = product.predict(checkpoint, videos)
    np.testing.assert_allclose(arrays["cdf"], expected, atol=1e-5)
    forecast = Forecast(arrays["knots"], arrays["cdf"], arrays["mean"], videos.target.astype(np.float64))
    found = judge(forecast, 0.0, 3.0)
    assert found.rows == videos.rows
    assert 0.0 < found.crps < np.std(videos.target)
