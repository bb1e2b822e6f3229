"""The judge of the split finds variances of the right size, and those that are not."""

import numpy as np
import pytest

from benchmarks.truth.parts import Parts
from benchmarks.truth.variances import Served, disagreeing, falls_with_history, judge_members, judge_pairs
from ghostless.contract.pair_test import ALL, MASKED
from learning.data.table import Array, Table
from learning.data.video import VIDEO_SCHEMA

USERS, VIDEOS = 600, 300
OF_USER, OF_VIDEO = 0.09, 0.04


def table(rows: int, seed: int, scale: float) -> Table:
    """The mean is 1; users and videos add to it with known variance, times `scale` for ids that were seen."""
    world = np.random.default_rng(0)
    users, videos = world.normal(size=USERS), world.normal(size=VIDEOS)
    random = np.random.default_rng(seed)
    user, video = random.integers(0, USERS, rows), random.integers(0, VIDEOS, rows)
    shared = np.sqrt(OF_USER * scale) * users[user] + np.sqrt(OF_VIDEO * scale) * videos[video]
    target = np.clip(1.5 + shared + 0.2 * random.normal(size=rows), 0, 3)
    columns: dict[str, Array] = {"user_id": user, "video_id": video, "duration_ms": np.ones(rows, np.float32)}
    return Table(VIDEO_SCHEMA, columns, target.astype(np.float32))


@pytest.mark.parametrize(("claimed", "wrong"), [(1.0, 0), (0.0, 2), (4.0, 2)])
def test_variances_are_held_against_pairs(claimed: float, wrong: int) -> None:
    parts = Parts("world", table(20_000, 1, 1.0), table(20_000, 2, 1.0))
    rows = parts.judged.rows
    served = Served(
        mean=np.full(rows, 1.5),
        epistemic=np.full(rows, claimed * (OF_USER + OF_VIDEO) + 0.001),
        candidate=np.full(rows, claimed * OF_VIDEO + 0.001),
        last_layer=np.full(rows, 0.001),
    )
    found = judge_pairs(parts, served, (served, served))
    # Every id has between 20 and 199 rows.
    assert disagreeing([figure for figure in found if figure.history == "20-49"]) == wrong
    whole = {figure.feature: figure.ratio for figure in found if figure.history == ALL}
    for ratio in whole.values():
        assert ratio == pytest.approx(claimed, rel=0.2, abs=0.01)
    assert sum(figure.history == MASKED for figure in found) == 2
    assert not falls_with_history(found, "user_id")


def test_members_of_an_ensemble_are_held_against_the_same_pairs() -> None:
    """Five means that lie about the truth with variance 0.01, where users share 0.09 and videos 0.04."""
    parts = Parts("world", table(20_000, 1, 1.0), table(20_000, 2, 1.0))
    nothing = np.zeros(parts.judged.rows)
    means = 1.5 + 0.1 * np.array([-1.0, -1.0, 0.0, 1.0, 1.0]) / np.sqrt(0.8)
    found = judge_members(parts, [Served(nothing + mean, nothing, nothing, nothing) for mean in means])
    whole = {figure.feature: figure for figure in found if figure.history == ALL}
    assert {name: figure.served for name, figure in whole.items()} == pytest.approx({"user_id": 0.01, "video_id": 0.01})
    assert whole["user_id"].measured == pytest.approx(OF_USER, rel=0.2)
    assert whole["video_id"].measured == pytest.approx(OF_VIDEO, rel=0.2)


def test_a_served_variance_that_falls_is_seen() -> None:
    parts = Parts("world", table(6_000, 1, 1.0), table(20_000, 2, 1.0))
    history = parts.history("user_id")
    epistemic = np.asarray(1.0 / (1.0 + history), np.float64)
    nothing = np.zeros(parts.judged.rows)
    served = Served(nothing, epistemic, nothing, nothing)
    assert falls_with_history(judge_pairs(parts, served, (served, served)), "user_id")
