"""Effects of a run: what pairs measure, which rank and scale held-out rows choose."""

import numpy as np
import pytest
import torch

from ghostless.contract.pair_test import PairRows, pair_figures
from ghostless.heads.effect_variance import EffectVariance
from ghostless.heads.effects import EffectRows, Effects, SideColumns
from learning.checkpoint import Checkpoint
from learning.data.encoding import Encoding
from learning.data.synthetic import SyntheticVideos
from learning.data.table import Table
from learning.id_effects import effect_rows, factor_pair, fit_effects, predicted
from learning.schema import Schema
from learning.trained import TrainedModel
from learning.training import Trainer, split
from tests.support.training import brief_training, small_model


@pytest.fixture(scope="module")
def checkpoint(videos: Table) -> Checkpoint:
    return Trainer(videos, "videos", small_model(head="cr"), brief_training()).run()


def test_the_variance_of_right_effects_is_what_pairs_measure() -> None:
    """user and video crossed, both with known variance, users seen 2 to 30 times."""
    random = np.random.default_rng(3)
    users, videos = 2000, 500
    alpha, beta = 0.5 * random.normal(size=users), 0.3 * random.normal(size=videos)

    def world(user: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        video = random.integers(0, videos, len(user))
        return np.stack([user, video], 1) + 1, alpha[user] + beta[video] + random.normal(size=len(user))

    often = random.choice([2, 4, 8, 30], users)
    codes, y = world(np.repeat(np.arange(users), often))
    no_side = SideColumns(np.zeros((len(y), 0), int), np.zeros((len(y), 0)))
    effects = EffectRows(("user", "video"), (users + 1, videos + 1), (), codes, no_side, y).fit()
    held, truth = world(np.repeat(np.arange(users), 10))
    by_name = {"user": held[:, 0], "video": held[:, 1]}
    rows = PairRows(
        residual=truth - effects.side[0] - effects.mean_of(by_name),
        roots={name: EffectVariance(effects).roots(by_name, name) for name in by_name},
        ids=by_name,
        history={
            "user": often[held[:, 0] - 1],
            "video": np.bincount(codes[:, 1], minlength=videos + 1)[held[:, 1]],
        },
    )
    figures = {figure.history: figure for figure in pair_figures(rows) if figure.feature == "user"}
    assert set(figures) == {"1-2", "3-5", "6-9", "20-49", "all"}
    for figure in figures.values():
        assert figure.served == pytest.approx(figure.measured, rel=0.15, abs=3 * figure.error)


def test_a_chain_shares_what_is_below_has_left() -> None:
    effects = Effects(
        mean={"author": np.zeros(2), "video": np.zeros(3)},
        variance={"author": np.array([2.0, 1.0]), "video": np.array([4.0, 2.0, 1.0])},
        priors={"author": 2.0, "video": 4.0},
        parents={"video": "author"},
        noise=1.0,
        side=np.zeros(1),
    )
    codes = {"author": np.array([1, 1, 0]), "video": np.array([1, 2, 0])}
    assert effects.below("author") == ("video",)
    assert effects.below("video") == ()
    served = EffectVariance(effects)
    video, author = (served.roots(codes, name)[:, 0] ** 2 for name in ("video", "author"))
    np.testing.assert_allclose(video, [2.0, 1.0, 4.0])
    np.testing.assert_allclose(author, [0.25, 0.0625, 2.0])
    np.testing.assert_allclose(video + author, effects.variance_of(codes))


def test_rows_are_predicted_as_served(checkpoint: Checkpoint, videos: Table) -> None:
    encoding, predict = checkpoint.encoding, checkpoint.network.eval().predict
    # More than one batch.
    rows = predicted(predict, encoding, videos)
    with torch.no_grad():
        served = predict({key: torch.from_numpy(values) for key, values in encoding.encode(videos).items()})
        np.testing.assert_allclose(rows.residual, videos.target - served.mean().numpy(), atol=1e-4)
        np.testing.assert_allclose(rows.total, (served.aleatoric() + served.epistemic()).numpy(), rtol=1e-3)
    masked = predicted(predict, encoding, videos, ("user_id",))
    assert not np.any(masked.codes["user_id"])
    np.testing.assert_array_equal(masked.codes["video_id"], rows.codes["video_id"])
    np.testing.assert_array_equal(masked.history["user_id"], rows.history["user_id"])
    assert not np.allclose(masked.residual, rows.residual)


def test_every_id_feature_is_judged(checkpoint: Checkpoint, videos: Table) -> None:
    test = split(videos, checkpoint.train_config).test
    assert test is not None
    found = TrainedModel((checkpoint,)).judge_pairs(test)
    assert found is not None
    assert {figure.feature for figure in found.figures} == {"user_id", "video_id"}
    assert [figure.feature for figure in found.figures if figure.history == "masked"] == ["user_id", "video_id"]
    assert found.rows == test.rows


def test_a_twin_has_no_effects(videos: Table) -> None:
    twin = Trainer(videos, "videos", small_model(head="cr", method="deterministic"), brief_training()).run()
    assert twin.model.effects is None
    assert TrainedModel((twin,)).judge_pairs(videos) is None


def test_held_out_rows_choose_the_rank() -> None:
    """Taste meets topic in the synthetic world, 4 of them; with the interaction taken away, rank 0 is right."""
    world = SyntheticVideos(seed=0, users=400, items=200)
    train, held_out = world.sample(40_000, seed=1), world.sample(8_000, seed=2)
    encoding = Encoding.fit(train)
    fitted = fit_effects(encoding, effect_rows(encoding, train), held_out)
    assert fitted.rank == 4
    assert fitted.pair == factor_pair(encoding, fitted.effects) == ("user_id", "video_id")
    random = np.random.default_rng(0)
    main = 0.3 * random.normal(size=400), 0.3 * random.normal(size=200)

    def additive(table: Table) -> Table:
        y = 1.5 + main[0][table.columns["user_id"]] + main[1][table.columns["video_id"]]
        return Table(table.schema, table.columns, (y + 0.3 * random.normal(size=table.rows)).astype(np.float32))

    without = fit_effects(encoding, effect_rows(encoding, additive(train)), additive(held_out))
    assert without.rank == 0


def test_effects_need_no_numbers() -> None:
    schema = Schema.from_dict(
        {
            "features": [{"name": "user", "kind": "id", "type": "int64", "role": "context"}],
            "target": {"name": "y", "low": 0.0, "high": 1.0, "unit": ""},
        },
        "test",
    )
    table = Table(schema, {"user": np.arange(40) % 4}, (np.arange(40) % 4 / 4).astype(np.float32))
    effects = effect_rows(Encoding.fit(table), table).fit()
    assert np.all(np.diff(effects.mean["user"][1:]) > 0)
