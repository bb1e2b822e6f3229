"""`--head auto`: the weight against a search, the choice by hand, and the whole way through the command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ghostless.contract.errors import ConfigError
from ghostless.heads.calibration import apply_map
from ghostless.heads.config import HeadName
from learning import auto, evaluation, training
from learning.auto import Choice
from learning.checkpoint import FILE as CHECKPOINT
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.errors import CheckpointError
from learning.trained import FILE, TrainedModel, is_complete
from learning.training import Trainer
from tests.support.command_line import Ghostless
from tests.support.training import brief_training, small_model


class TestChoice:
    def test_the_weight_is_the_best_of_a_fine_grid(self) -> None:
        random = np.random.default_rng(0)
        qr, cr = random.uniform(0.01, 1.0, 500), random.uniform(0.01, 1.0, 500)
        weight = auto.best_weight(qr, cr)
        grid = np.linspace(0, 1, 2001)
        nlls = [-np.mean(np.log(w * qr + (1 - w) * cr)) for w in grid]
        assert weight == pytest.approx(grid[int(np.argmin(nlls))], abs=2e-3)
        choice = auto.compare(qr, cr, weight * qr + (1 - weight) * cr, weight)
        assert choice.pool_nll == pytest.approx(min(nlls), abs=1e-6)
        assert (choice.qr_nll, choice.cr_nll) == pytest.approx((nlls[-1], nlls[0]))
        assert choice.head == "pool"

    def test_the_error_is_that_of_the_paired_difference(self) -> None:
        """Against the spread of the mean difference over many resamples of the rows."""
        random = np.random.default_rng(1)
        qr = random.uniform(0.1, 1.0, 400)
        cr, pool = qr * random.uniform(0.5, 1.0, 400), qr * random.uniform(0.9, 1.2, 400)
        choice = auto.compare(qr, cr, pool, 0.5)
        gains = np.log(pool) - np.log(qr)
        resampled = [gains[random.integers(0, 400, 400)].mean() for _ in range(3_000)]
        assert choice.pool_error == pytest.approx(np.std(resampled), rel=0.1)

    @pytest.mark.parametrize(
        ("choice", "head"),
        [
            (Choice(1.0, 1.2, 0.99, 0.8), "pool"),
            (Choice(1.0, 1.2, 0.999, 0.95), "qr"),  # better, but not by what a second network costs
            (Choice(1.3, 1.2, 1.2, 0.0), "cr"),
            (Choice(1.0, 1.2, 0.99, 0.8, pool_error=0.009), "pool"),
            (Choice(1.0, 1.2, 0.99, 0.8, pool_error=0.011), "qr"),  # better, but it may be chance
        ],
    )
    def test_a_pool_must_be_worth_two_networks(self, choice: Choice, head: str) -> None:
        assert choice.head == head


@pytest.fixture(scope="module")
def heads(videos: Table) -> dict[HeadName, Checkpoint]:
    config = brief_training(validation=0.2, calibration=0.2)
    return {head: Trainer(videos, "videos", small_model(head=head), config).run() for head in auto.HEADS}


def test_a_pool_is_saved_and_loaded(heads: dict[HeadName, Checkpoint], videos: Table, tmp_path: Path) -> None:
    for head, checkpoint in heads.items():
        checkpoint.save(tmp_path / head)
    pool = TrainedModel((heads["cr"], heads["qr"]), (0.4, 0.6), {"nll": 1.5})
    pool.save(tmp_path)
    kept = TrainedModel.load(tmp_path)
    # Without effects a pool's ignorance is its members' own.
    kept.first.model.effects = None
    assert (kept.head, kept.weights, kept.metrics) == ("pool", (0.4, 0.6), {"nll": 1.5})
    assert is_complete(tmp_path)
    batch = {name: torch.from_numpy(values) for name, values in heads["cr"].encoding.encode(videos).items()}
    with torch.no_grad():
        mixed, cr, qr = (
            predict(batch)
            for predict in (kept.predict, heads["cr"].network.uncalibrated, heads["qr"].network.uncalibrated)
        )
        points = torch.tensor([0.2, 1.0, 2.0])
        torch.testing.assert_close(mixed.cdf(points), 0.4 * cr.cdf(points) + 0.6 * qr.cdf(points))
        apart = 0.24 * (cr.mean() - qr.mean()).square()
        torch.testing.assert_close(mixed.epistemic(), 0.4 * cr.epistemic() + 0.6 * qr.epistemic() + apart)
        assert not pool.calibrated().calibration.is_identity
        pool.calibrated().save(tmp_path)
        mapped = TrainedModel.load(tmp_path).predict(batch)
        heights = torch.tensor(pool.calibrated().calibration.heights)
        inner = heads["cr"].model.head.knots[1:-1]
        torch.testing.assert_close(mapped.cdf(inner), apply_map(mixed.cdf(inner), heights))


def test_choose_takes_the_best_on_validation_rows(heads: dict[HeadName, Checkpoint], videos: Table) -> None:
    choice = auto.choose(videos, heads["cr"], heads["qr"])
    pool = auto.assemble(choice, heads, videos)
    assert (pool.head, len(pool.checkpoints)) == (choice.head, len(choice.heads))
    validation = training.split(videos, heads["qr"].train_config).validation
    assert validation is not None
    nlls = {head: evaluation.evaluate(one, validation).metrics().nll for head, one in heads.items()}
    for head, nll in nlls.items():
        assert pool.metrics[f"validation_{head}_nll"] == pytest.approx(nll)
    own = evaluation.evaluate(pool.first, validation, pool.predict).metrics().nll
    assert own <= min(nlls.values()) + 1e-6
    assert pool.metrics["logit_variance_p999"] > pool.metrics["logit_variance_p50"] > 0


def test_without_validation_rows_there_is_nothing_to_choose_on(videos: Table) -> None:
    run = Trainer(videos, "videos", small_model(), brief_training(epochs=1)).run()
    with pytest.raises(ConfigError, match="--validation"):
        auto.choose(videos, run, run)


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "damaged"), ("{}", "damaged"), (json.dumps({"format": 9, "members": {}, "metrics": {}}), "format 9")],
)
def test_a_damaged_pool_is_named(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(CheckpointError, match=said):
        TrainedModel.load(tmp_path)


def test_the_command_trains_both_chooses_and_goes_on_where_it_stopped(ghostless: Ghostless, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("train", "--data", "synthetic:3000", "--epochs", "1", "--head", "auto", "--calibration", "0.1")
    status, printed, err = ghostless(*words, "--out", out, "--json")
    assert status == 0, err
    figures = json.loads(printed)
    assert figures["head"] in ("qr", "cr", "pool")
    assert {"validation_qr_nll", "validation_cr_nll", "validation_pool_nll", "nll", "pit_ks"} <= set(figures)
    assert is_complete(out)
    # What was chosen is trained on the validation rows too.
    assert figures["train_rows"] == 2160
    runs = sorted(file.parent for file in out.rglob(CHECKPOINT) if file.parent != out)
    assert {run.name for run in runs if run.parent.name == "trial"} == set(auto.HEADS)
    before = {run: (run / CHECKPOINT).stat().st_mtime_ns for run in runs}
    # As if it had been cut off before the choice: the finished networks are not trained again.
    for file in (out / FILE, out / CHECKPOINT):
        file.unlink(missing_ok=True)
    assert ghostless(*words, "--out", out)[0] == 0
    assert {run: (run / CHECKPOINT).stat().st_mtime_ns for run in runs} == before
    status, printed, err = ghostless("evaluate", out, "--json")
    assert status == 0, err
    assert json.loads(printed)["nll"] == pytest.approx(figures["nll"], rel=1e-6)


def test_with_its_own_validation_share_the_tried_networks_are_kept(ghostless: Ghostless, tmp_path: Path) -> None:
    words = ("train", "--data", "synthetic:3000", "--epochs", "1", "--head", "auto", "--validation", "0.25", "--json")
    status, printed, err = ghostless(*words, "--out", tmp_path)
    assert status == 0, err
    assert json.loads(printed)["train_rows"] == 1620
    assert not (tmp_path / "trial").exists()
