"""Acquisition functions against what they are defined as, and the batches that are bought by them."""

import numpy as np
import pytest
import torch

from ghostless.contract.errors import ConfigError
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.training import Trainer
from research.active import strategies
from research.active.strategies import choose, moments, strategy
from tests.support.training import brief_training, small_model


@pytest.fixture(scope="module", params=["qr", "cr"])
def checkpoint(request: pytest.FixtureRequest, videos: Table) -> Checkpoint:
    model = small_model(head=request.param, dropout=0.1)
    return Trainer(videos, "videos", model, brief_training(epochs=1)).run()


def test_scores_are_what_the_paper_defines(checkpoint: Checkpoint, videos: Table) -> None:
    columns = {name: torch.from_numpy(values) for name, values in checkpoint.encoding.encode(videos).items()}
    with torch.no_grad():
        predicted = checkpoint.network.predict(columns)
        s2, noise = predicted.epistemic().double().numpy(), predicted.aleatoric().double().numpy()
    expected = {
        "epistemic": s2,
        "total": s2 + noise,
        "hybrid:0.2": s2 + 0.2 * noise,
        "bald-vbll": s2 / (s2 + noise),
        "scaled:0.5": s2 / s2.mean() + 0.5 * noise / noise.mean(),
    }
    for name, scores in expected.items():
        np.testing.assert_allclose(strategy(name)(checkpoint, videos, 0), scores, rtol=1e-5, err_msg=name)
    np.testing.assert_array_equal(strategy("hybrid:0")(checkpoint, videos, 0), moments(checkpoint, videos).epistemic)


def test_dropout_disagreement_is_the_variance_of_the_means(
    checkpoint: Checkpoint, videos: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = strategy("bald-mcd")(checkpoint, videos, 3)
    assert np.array_equal(scores, strategy("bald-mcd")(checkpoint, videos, 3))
    assert not np.array_equal(scores, strategy("bald-mcd")(checkpoint, videos, 4))
    assert np.median(scores) > 0
    # A network that drops nothing disagrees with itself about nothing.
    monkeypatch.setattr(checkpoint.network.backbone.dropout, "p", 0.0)
    assert strategy("bald-mcd")(checkpoint, videos, 3).max() < 1e-12


def test_random_is_by_seed(checkpoint: Checkpoint, videos: Table) -> None:
    first, same, other = (strategy("random")(checkpoint, videos, seed) for seed in (0, 0, 1))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", ["best", "hybrid", "hybrid:", "hybrid:-1", "scaled:nan", "random:2"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"no strategy|expected a number"):
        strategy(name)


def test_how_a_batch_is_filled_follows_the_name() -> None:
    assert strategies.parse("hybrid:0.1") == ("hybrid:0.1", "top")
    assert strategies.parse("bald-vbll+power") == ("bald-vbll", "power")
    with pytest.raises(ConfigError, match=r"expected \+power"):
        strategies.parse("total+best")


class TestChoose:
    def test_top_takes_the_highest(self) -> None:
        assert choose(np.array([0.1, 0.9, 0.5, 0.7]), 2, "top", 0).tolist() == [1, 3]

    def test_power_draws_in_proportion(self) -> None:
        scores = np.array([1.0, 2.0, 7.0])
        drawn = [int(choose(scores, 1, "power", seed)[0]) for seed in range(4000)]
        shares = np.bincount(drawn, minlength=3) / len(drawn)
        assert shares == pytest.approx(scores / scores.sum(), abs=0.03)

    def test_power_takes_no_row_twice_and_allows_zero(self) -> None:
        chosen = choose(np.array([0.0, 0.0, 1.0, 2.0]), 3, "power", 0)
        assert len(set(chosen.tolist())) == 3
        assert {2, 3} <= set(chosen.tolist())


def test_names_are_the_ones_that_help_shows() -> None:
    for name in strategies.NAMES.split(", "):
        assert callable(strategy(name.replace("GAMMA", "0.1")))
