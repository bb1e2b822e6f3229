"""What an evaluation keeps of predictions: masses, history buckets, the censored CDF."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ghostless.contract import distribution
from learning.checkpoint import Checkpoint
from learning.config import ModelConfig, TrainConfig
from learning.data.table import Table
from learning.evaluation import HISTORY, Evaluation, censored_cdf, draw, evaluate, history_counts
from learning.schema import Feature, Schema, Target
from learning.training import Trainer


@pytest.fixture(scope="module")
def judged(run: Path, videos: Table) -> Evaluation:
    return evaluate(Checkpoint.load(run), videos)


def test_masses_are_distributions_that_hold_what_lies_outside_in_the_end_buckets(judged: Evaluation) -> None:
    assert judged.masses.shape == (3000, 10)
    assert judged.masses.min() >= -1e-6
    np.testing.assert_allclose(judged.masses.sum(1), 1.0, atol=1e-5)
    np.testing.assert_allclose(judged.edges, np.linspace(0.0, 3.0, 11), atol=1e-6)


def test_all_rows_are_judged_in_order(judged: Evaluation, videos: Table) -> None:
    np.testing.assert_array_equal(judged.y, videos.target)
    assert judged.metrics().rows == 3000


def test_history_is_how_often_training_saw_the_user(run: Path, judged: Evaluation, videos: Table) -> None:
    encoding = Checkpoint.load(run).encoding
    users = videos.columns["user_id"]
    seen = dict(zip(encoding.vocabularies["user_id"].tolist(), encoding.counts["user_id"].tolist(), strict=True))
    assert judged.history.tolist() == [seen.get(user, 0) for user in users.tolist()]
    assert judged.history_name == "user_id"
    assert history_counts(encoding, "user_id", np.array([0])).tolist() == [0]


def test_buckets_average_the_rows_they_name(judged: Evaluation) -> None:
    for bucket, (low, high) in zip(judged.epistemic_by_history(), HISTORY[-4:], strict=False):
        inside = (judged.history >= low) & (judged.history <= high)
        if inside.any() and bucket["history"] == f"{low}-{high}":
            assert bucket["rows"] == inside.sum()
            assert bucket["epistemic"] == pytest.approx(judged.epistemic[inside].mean())


def test_an_unknown_user_is_less_certain_than_any_known_one(run: Path, videos: Table) -> None:
    known = videos.take(slice(0, 1))
    columns = {**known.columns, "user_id": np.array([10**9])}
    checkpoint = Checkpoint.load(run)
    stranger = evaluate(checkpoint, Table(known.schema, columns, known.target))
    assert stranger.history.tolist() == [0]
    assert stranger.epistemic[0] > evaluate(checkpoint, known).epistemic[0]


def test_cold_start_ratio_needs_both_ends() -> None:
    empty = np.zeros(0, np.float32)
    rows: dict[str, Any] = {
        "y": empty,
        "mean": empty,
        "aleatoric": empty,
        "logit_variance": empty,
        "knots": empty,
        "cdf": empty,
    }
    rest: dict[str, Any] = {"edges": empty, "masses": empty, "history_name": "user_id", "head": "qr"}
    epistemic = np.array([6.0, 2.0, 1.0, 3.0], np.float32)
    both = Evaluation(**rows, **rest, epistemic=epistemic, history=np.array([0, 5, 20, 99]))
    assert both.cold_start_ratio() == 3.0
    warm = Evaluation(**rows, **rest, epistemic=epistemic, history=np.array([1, 5, 20, 99]))
    assert np.isnan(warm.cold_start_ratio())


def test_the_censored_cdf_jumps_to_0_and_1_at_the_ends(run: Path, videos: Table) -> None:
    checkpoint = Checkpoint.load(run)
    batch = {name: torch.from_numpy(values) for name, values in checkpoint.encoding.encode(videos).items()}
    with torch.no_grad():
        predictive = checkpoint.model.predict(batch)
        knots = torch.linspace(0.0, 3.0, 7)
        cdf = censored_cdf(predictive, knots)
    assert cdf[:, 0].eq(0).all()
    assert cdf[:, -1].eq(1).all()
    torch.testing.assert_close(cdf[:, 1:-1], predictive.cdf(knots[1:-1]))


@pytest.mark.parametrize("head", ["cr", "qr"])
def test_a_target_with_atoms_is_calibrated_and_drawn(head: str, tmp_path: Path) -> None:
    """40% on the upper end, depending on x: closed intervals cover too much, the randomised PIT as promised."""
    random = np.random.default_rng(0)
    x = random.normal(size=24_000).astype(np.float32)
    hidden = 0.8 * x + random.normal(size=len(x))
    y = np.minimum(4.0, np.exp(0.5 * hidden) + 0.2 * random.random(len(x)))
    y[hidden > 0.3] = 4.0
    schema = Schema((Feature("x", "number", type="float32"),), Target("y", "s", 0.0, 4.0))
    config = TrainConfig(epochs=4, batch_rows=512, calibration=0.3)
    trainer = Trainer(Table(schema, {"x": x}, y.astype(np.float32)), "y", ModelConfig(head=head, hidden=(32,)), config)
    checkpoint = trainer.run()
    assert trainer.test is not None
    judged = evaluate(checkpoint, trainer.test)
    figures = judged.metrics()
    assert figures.pit_coverage_50 == pytest.approx(0.5, abs=0.025)
    assert figures.pit_coverage_80 == pytest.approx(0.8, abs=0.025)
    assert figures.pit_coverage_90 == pytest.approx(0.9, abs=0.02)
    assert figures.pit_ks < 0.035
    assert figures.coverage_50 > 0.55
    values, masses = distribution.atoms(judged.cdf, judged.knots)
    assert 4.0 in values
    top = masses[:, list(values).index(4.0)]
    # Quantile curves are continuous in x, so QR smears a part of the atom over its neighbours.
    assert top.mean() == pytest.approx((judged.y == 4.0).mean(), abs=0.02 if head == "cr" else 0.07)
    # The paper's last bucket [3.6, 4.0] holds the atom.
    assert (judged.masses[:, -1] >= top - 1e-5).all()
    assert all(path.stat().st_size > 1000 for path in draw(judged, checkpoint, tmp_path))
