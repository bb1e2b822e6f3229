"""Conformal levels: order statistics by hand, coverage of models that are wrong, targets that sit on their range."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from ghostless.heads.closed_forms import piecewise
from learning import conformal, evaluation, training
from learning.array_checks import Floats
from learning.checkpoint import Checkpoint
from learning.conformal import FIRST, LAST, ConformalLevels, Snap
from learning.data.table import Table, sample
from learning.schema import Feature, Schema, Target
from learning.training import Trainer
from tests.support.training import brief_training, small_model

KNOTS = np.linspace(0.0, 3.0, 31)
NO_SNAP = Snap(0.0, 3.0, 0.0, 0.0)


def wrong_model(x: Floats) -> Floats:
    """A CDF [n, 31] that is neither where y lies nor as wide as it."""
    cdf = stats.norm.cdf((KNOTS - (0.8 + 0.9 * x[:, None])) / 0.2)
    cdf[:, 0], cdf[:, -1] = 0.0, 1.0
    return np.asarray(cdf, np.float64)


def world(rows: int, seed: int, shift: float = 1.0) -> tuple[Floats, Floats]:
    """x uniform, y normal about shift + x and clipped to [0, 3]; a small shift leaves many at 0."""
    random = np.random.default_rng(seed)
    x = random.uniform(0, 1, rows)
    return x, np.clip(shift + x + random.normal(0, 0.4, rows), 0, 3)


class TestAdjusted:
    levels = ConformalLevels(np.arange(1, 10) / 10, np.arange(1, 10) / 10 + 0.01, NO_SNAP)

    def test_order_statistics_by_hand(self) -> None:
        # n + 1 = 10: floor(10 u)-th of the lower scores, ceil(10 u)-th of the upper ones.
        assert self.levels.adjusted([0.1, 0.25, 0.5, 0.55, 0.9]).tolist() == pytest.approx([0.1, 0.2, 0.51, 0.61, 0.91])

    def test_too_few_rows_give_the_ends_of_the_range(self) -> None:
        adjusted = self.levels.adjusted([0.05, 0.95])
        assert adjusted.tolist() == [FIRST, LAST]
        ends = conformal.quantiles(self.levels, wrong_model(np.array([0.3])), KNOTS, [0.05, 0.95])
        assert ends.tolist() == [[0.0, 3.0]]

    def test_never_decreasing(self) -> None:
        # Scores of a target that mostly sits on its lower end: the upper ones are below the lower ones.
        levels = ConformalLevels(np.full(99, 0.7), np.full(99, 0.2), NO_SNAP)
        assert levels.adjusted([0.3, 0.5, 0.9]).tolist() == [0.7, 0.7, 0.7]


def test_level_at_undoes_the_returned_quantiles() -> None:
    random = np.random.default_rng(0)
    # Masses below the floor among them.
    masses = random.dirichlet(np.full(30, 0.2), 50)
    cdf = torch.from_numpy(np.concatenate([np.zeros((50, 1)), masses.cumsum(1)], 1)).clamp(max=1.0)
    knots = torch.from_numpy(KNOTS)
    levels = torch.from_numpy(random.uniform(0.01, 0.99, 50))
    places = piecewise.quantiles(cdf, knots, levels.unsqueeze(-1)).squeeze(-1)
    found = conformal.level_at(cdf, knots, places)
    assert torch.allclose(found, levels, atol=1e-9)


class TestSnap:
    snap = Snap(0.0, 3.0, 0.03, 0.03)

    def test_ends_ramps_and_the_rest(self) -> None:
        given = torch.tensor([0.0, 0.02, 0.03, 0.045, 0.06, 1.5, 2.94, 2.955, 2.97, 3.0])
        expected = torch.tensor([0.0, 0.0, 0.0, 0.03, 0.06, 1.5, 2.94, 2.97, 3.0, 3.0])
        assert torch.allclose(self.snap(given), expected, atol=1e-6)

    def test_inverses(self) -> None:
        y = torch.tensor([0.0, 0.01, 0.06, 1.0, 2.99, 3.0], dtype=torch.float64)
        most, least = self.snap.largest_at_most(y), self.snap.smallest_at_least(y)
        step = 1e-6
        assert bool((self.snap(most) <= y + 1e-12).all() and (self.snap(least) >= y - 1e-12).all())
        assert bool((self.snap(most + step) > y)[:-1].all() and (self.snap(least - step) < y)[1:].all())

    def test_only_where_targets_sit_on_the_end(self) -> None:
        about = Snap(0.0, 3.0, pytest.approx(0.03), 0.0)  # type: ignore[arg-type]  # only compared
        assert Snap.of(torch.tensor([0.0, 1.0]), 0.0, 3.0) == about
        free = Snap.of(torch.tensor([0.5, 1.0]), 0.0, 3.0)
        values = torch.linspace(0, 3, 50)
        assert torch.equal(free(values), values)


def test_the_promise_holds_on_average_with_few_rows() -> None:
    """19 calibration rows and a wrong model: on average the intervals cover what they say."""
    inside_90, inside_80 = [], []
    for trial in range(400):
        x, y = world(19 + 200, seed=trial)
        levels = conformal.fit(wrong_model(x[:19]), KNOTS, y[:19])
        ends = conformal.quantiles(levels, wrong_model(x[19:]), KNOTS, [0.05, 0.1, 0.9, 0.95])
        truth = y[19:]
        inside_90.append(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 3])))
        inside_80.append(np.mean((ends[:, 1] <= truth) & (truth <= ends[:, 2])))
    # (n + 1) u = 1 exactly at u = 0.05, so the coverage is 18 / 20 itself, with a standard error of 0.0035.
    assert np.mean(inside_90) == pytest.approx(0.90, abs=0.015)
    assert np.mean(inside_80) == pytest.approx(0.80, abs=0.02)


@pytest.mark.parametrize("shift", [1.0, 0.0])
def test_coverage_of_a_wrong_model(shift: float) -> None:
    """With shift 0 over a tenth of the targets are exactly 0, twice what the lower level may miss."""
    x, y = world(60_000, 7, shift)
    assert shift or 0.1 < (y == 0.0).mean() < 0.3
    cdf = wrong_model(x)
    levels = conformal.fit(cdf[:20_000], KNOTS, y[:20_000])
    figures = conformal.figures(levels, cdf[20_000:], KNOTS, y[20_000:])
    assert figures["calibration_rows"] == 20_000
    for share in (50, 80, 90):
        assert figures[f"conformal_{share}"] == pytest.approx(share / 100, abs=0.01)
    ends = conformal.quantiles(None, cdf[20_000:], KNOTS, [0.05, 0.95])
    plain = np.mean((ends[:, 0] <= y[20_000:]) & (y[20_000:] <= ends[:, 1]))
    assert plain < 0.7
    assert figures["conformal_width_90"] > figures["width_90"]


def test_sample_takes_all_or_about_the_most(videos: Table) -> None:
    assert sample(videos, 3000, 0).rows == videos.rows
    few = sample(videos, 500, 0)
    assert few.rows == 500
    assert not np.array_equal(few.target, videos.target[:500])


def test_a_run_keeps_rows_that_it_did_not_train_on(videos: Table, tmp_path: Path) -> None:
    config = brief_training(calibration=0.25)
    trainer = Trainer(videos, "videos", small_model(head="cr"), config, tmp_path)
    parts = training.split(videos, config)
    assert parts.calibration is not None
    assert parts.test is not None
    assert trainer.train_rows + parts.calibration.rows + parts.test.rows == videos.rows
    trainer.run()
    checkpoint = Checkpoint.load(tmp_path)
    assert checkpoint.calibration is not None
    assert checkpoint.calibration.fingerprint() == parts.calibration.fingerprint()
    figures = evaluation.conformal_figures(checkpoint, evaluation.evaluate(checkpoint, parts.test))
    assert figures["calibration_rows"] == parts.calibration.rows
    assert figures["conformal_90"] == pytest.approx(0.9, abs=0.05)


def test_strings_come_back_from_a_checkpoint(tmp_path: Path) -> None:
    schema = Schema((Feature("user", "id", type="string", embedding=4),), Target("y", "ratio", 0.0, 3.0))
    random = np.random.default_rng(0)
    names = np.array([f"user-{number}" for number in random.integers(0, 20, 400)])
    table = Table(schema, {"user": names}, random.uniform(0, 3, 400).astype(np.float32))
    Trainer(table, "table", small_model(), brief_training(calibration=0.2), tmp_path).run()
    kept = Checkpoint.load(tmp_path).calibration
    expected = training.split(table, brief_training(calibration=0.2)).calibration
    assert kept is not None
    assert expected is not None
    assert kept.fingerprint() == expected.fingerprint()


def test_without_kept_rows_there_are_no_conformal_figures(videos: Table) -> None:
    checkpoint = Trainer(videos, "videos", small_model(), brief_training(epochs=1, calibration=0.0)).run()
    assert checkpoint.calibration is None
    assert evaluation.conformal_figures(checkpoint, evaluation.evaluate(checkpoint, videos)) == {}
