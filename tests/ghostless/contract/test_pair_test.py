"""The pair test against loops over pairs, and on residuals whose shared variance is known."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ghostless.contract.pair_test import (
    ENOUGH_PAIRS,
    PairFigure,
    PairRows,
    PairTest,
    id_sums,
    masked_figure,
    pair_figures,
)

ROWS = 120


def random_rows() -> PairRows:
    """Videos are nested in authors, and rows of the same user and video occur."""
    random = np.random.default_rng(0)
    video = random.integers(0, 12, ROWS)
    ids = {"user": random.integers(0, 8, ROWS), "video": video, "author": video % 4}
    return PairRows(
        residual=random.normal(size=ROWS),
        roots={name: random.normal(size=(ROWS, 1 + (name == "user"))) for name in ids},
        ids=ids,
        history={name: random.integers(0, 300, 12)[ids[name]] for name in ids},
    )


@pytest.mark.parametrize("feature", ["user", "video", "author"])
def test_sums_over_pairs_are_those_of_a_loop(feature: str) -> None:
    rows = random_rows()
    expected, identical = np.zeros(3), 0
    for i, j in combinations(range(ROWS), 2):
        shared = [name for name in rows.names if rows.ids[name][i] == rows.ids[name][j]]
        if feature not in shared:
            continue
        if len(shared) == len(rows.names):
            identical += 1
            continue
        served = sum(rows.roots[name][i] @ rows.roots[name][j] for name in shared)
        expected += [1.0, rows.residual[i] * rows.residual[j], served]
    assert identical > 0
    sums = id_sums(rows, feature)
    found = [values.sum() for values in (sums.pairs, sums.measured, sums.served)]
    np.testing.assert_allclose(found, expected)


def test_a_single_id_feature_keeps_all_its_pairs() -> None:
    rows = random_rows()
    alone = replace(rows, ids={"user": rows.ids["user"]}, roots={"user": rows.roots["user"]})
    counts = np.bincount(rows.ids["user"])
    assert id_sums(alone, "user").pairs.sum() == (counts * (counts - 1) / 2).sum()


def known(shared: float, served: float, count: int = 40_000, seed: int = 1) -> PairRows:
    """Residuals with variance 1, of which `shared` belongs to the user and `served` is claimed."""
    random = np.random.default_rng(seed)
    user, video = random.integers(0, 4000, count), random.integers(0, count, count)
    residual = np.sqrt(shared) * random.normal(size=4000)[user] + np.sqrt(1.0 - shared) * random.normal(size=count)
    return PairRows(
        residual=residual,
        roots={"user": np.full((count, 1), np.sqrt(served)), "video": np.zeros((count, 1))},
        ids={"user": user, "video": video},
        history={"user": np.where(user < 2000, 0, 30), "video": np.zeros(count, np.int64)},
    )


def of_users(rows: PairRows) -> list[PairFigure]:
    return [figure for figure in pair_figures(rows) if figure.feature == "user"]


def test_a_known_variance_is_measured() -> None:
    figures = of_users(known(0.1, 0.1))
    assert [figure.history for figure in figures] == ["0", "20-49", "all"]
    for figure in figures:
        assert figure.measured == pytest.approx(0.1, abs=3 * figure.error)
        assert 0.0 < figure.error < 0.01
        assert figure.served == pytest.approx(0.1)
        assert figure.verdict == "agrees"


def test_the_bootstraps_error_is_that_of_repeated_worlds() -> None:
    worlds = [of_users(known(0.1, 0.1, count=8000, seed=seed))[-1] for seed in range(60)]
    spread = np.std([world.measured for world in worlds])
    assert np.mean([world.error for world in worlds]) == pytest.approx(spread, rel=0.3)


def crossed(seed: int, users: int = 500, videos: int = 60, count: int = 3000) -> PairRows:
    """Every user meets the same few videos, and both share an error that is served as it is. The noise is skewed."""
    random = np.random.default_rng(seed)
    sizes = {"user": users, "video": videos}
    ids = {name: random.integers(0, size, count) for name, size in sizes.items()}
    shared = {"user": 0.05, "video": 0.02}
    residual = random.exponential(size=count) - 1.0
    for name, size in sizes.items():
        residual += np.sqrt(shared[name]) * random.normal(size=size)[ids[name]]
    roots = {name: np.full((count, 1), np.sqrt(shared[name])) for name in sizes}
    return PairRows(residual, roots, ids, {name: np.full(count, 10) for name in sizes})


@pytest.mark.parametrize("feature", ["user", "video"])
def test_errors_hold_where_ids_meet_each_other(feature: str) -> None:
    """Products of different users share videos, which a bootstrap over users does not know; it makes no difference."""
    worlds = []
    for seed in range(80):
        figures = pair_figures(crossed(seed))
        worlds.append(next(one for one in figures if (one.feature, one.history) == (feature, "all")))
    measured = np.array([world.measured for world in worlds])
    errors = np.array([world.error for world in worlds])
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(measured.std(), rel=0.25)
    inside = np.abs(measured - worlds[0].served) <= 2.0 * errors
    assert inside.mean() >= 0.85


@pytest.mark.parametrize("served", [0.0, 0.001, 0.1 / 3, 0.3])
def test_a_served_variance_of_the_wrong_size_is_found(served: float) -> None:
    rows = known(0.1, served)
    masked = masked_figure(rows, "user")
    assert masked is not None
    assert {figure.verdict for figure in (*of_users(rows), masked)} == {"disagrees"}


def test_masked_pairs_count_every_id_once() -> None:
    """One id with four rows of residual 1, one with two of residual 3: 1 and 9, whatever the number of pairs."""
    ids = np.array([0, 0, 0, 0, 1, 1])
    rows = PairRows(np.where(ids, 3.0, 1.0), {"user": np.ones((6, 1))}, {"user": ids}, {"user": ids})
    masked = masked_figure(rows, "user")
    assert masked is not None
    assert masked.measured == pytest.approx(5.0)
    assert (masked.pairs, masked.ids) == (7, 2)
    assert pair_figures(rows)[-1].measured == pytest.approx(15.0 / 7.0)


def test_few_pairs_are_not_judged() -> None:
    figures = pair_figures(known(0.1, 0.0, count=400))
    assert max(figure.pairs for figure in figures) < ENOUGH_PAIRS
    assert {figure.verdict for figure in figures} == {"unverified"}


def test_without_pairs_there_are_no_figures() -> None:
    rows = known(0.1, 0.1, count=50)
    apart = replace(rows, ids={name: np.arange(50) for name in rows.names})
    assert not pair_figures(apart)
    assert masked_figure(apart, "user") is None


@pytest.mark.parametrize(("served", "verdict"), [(0.1, "agrees"), (0.3, "disagrees")])
def test_one_figure_that_disagrees_decides(served: float, verdict: str) -> None:
    found = PairTest(40_000, tuple(of_users(known(0.1, served))))
    assert found.verdict == verdict
    assert PairTest(400, tuple(of_users(known(0.1, served, count=400)))).verdict == "unverified"
    assert PairTest.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_chance_among_many_figures_refutes_nothing() -> None:
    """Two errors off, and out of bounds by the ratio: a figure may say so, the whole needs more."""
    off = PairFigure("user", "20-49", 100, 5000, measured=0.001, error=0.001, served=0.0032)
    assert off.verdict == "disagrees"
    assert not off.refutes
    assert PairTest(1000, (off,)).verdict == "agrees"
    assert replace(off, served=0.009).refutes
    assert replace(off, measured=0.02, served=0.008).refutes
