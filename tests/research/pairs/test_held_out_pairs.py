"""Effects and pairs together: where the additive model is the truth, its variance is what pairs measure."""

import numpy as np
import pytest
import torch

from ghostless.heads.effects import EffectRows, Effects, SideColumns
from learning.checkpoint import Checkpoint
from learning.data.encoding import Encoding
from learning.data.table import Table
from learning.schema import Schema
from learning.trained import TrainedModel
from learning.training import Trainer, split
from research.pairs.held_out_pairs import below, effect_rows, judge_pairs, pair_rows, shared_part
from research.pairs.pair_test import PairRows, pair_figures
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
        total=np.ones(len(truth)),
        epistemic=effects.variance_of(by_name),
        parts={name: shared_part(effects, by_name, name) for name in by_name},
        ids=by_name,
        history={
            "user": often[held[:, 0] - 1],
            "video": np.bincount(codes[:, 1], minlength=videos + 1)[held[:, 1]],
        },
    )
    figures = {figure.history: figure for figure in pair_figures(rows, 1.0) if figure.feature == "user"}
    assert set(figures) == {"1-2", "3-5", "6-9", "20-49", "all"}
    for figure in figures.values():
        assert figure.effects == pytest.approx(figure.measured, rel=0.15, abs=3 * figure.error)
        # All the ignorance of two rows, not only what they share.
        assert figure.served > figure.effects


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
    assert below(effects, "author") == ("video",)
    assert below(effects, "video") == ()
    np.testing.assert_allclose(shared_part(effects, codes, "video"), [2.0, 1.0, 4.0])
    np.testing.assert_allclose(shared_part(effects, codes, "author"), [0.25, 0.0625, 2.0])
    together = shared_part(effects, codes, "video") + shared_part(effects, codes, "author")
    np.testing.assert_allclose(together, effects.variance_of(codes))


def test_rows_are_predicted_as_served(checkpoint: Checkpoint, videos: Table) -> None:
    encoding, predict = checkpoint.encoding, checkpoint.network.eval().predict
    effects = effect_rows(encoding, videos).fit()
    # More than one batch.
    rows = pair_rows(predict, effects, encoding, videos)
    with torch.no_grad():
        served = predict({key: torch.from_numpy(values) for key, values in encoding.encode(videos).items()})
        np.testing.assert_allclose(rows.residual, videos.target - served.mean().numpy(), atol=1e-4)
        np.testing.assert_allclose(rows.epistemic, served.epistemic().numpy(), rtol=1e-3)
        np.testing.assert_allclose(rows.total, (served.aleatoric() + served.epistemic()).numpy(), rtol=1e-3)
    masked = pair_rows(predict, effects, encoding, videos, ("user_id",))
    np.testing.assert_allclose(masked.parts["user_id"], effects.priors["user_id"])
    np.testing.assert_array_equal(masked.parts["video_id"], rows.parts["video_id"])
    np.testing.assert_array_equal(masked.history["user_id"], rows.history["user_id"])
    assert not np.allclose(masked.residual, rows.residual)


def test_every_id_feature_is_judged(checkpoint: Checkpoint, videos: Table) -> None:
    parts = split(videos, checkpoint.train_config)
    assert parts.test is not None
    found = judge_pairs(TrainedModel((checkpoint,)), parts.train, parts.test)
    assert {figure.feature for figure in found.figures} == {"user_id", "video_id"}
    assert [figure.feature for figure in found.masked] == ["user_id", "video_id"]
    assert found.rows == parts.test.rows


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
