"""Effects against dense linear algebra, and recovery of variances that are known."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from ghostless.heads.effects import EffectRows, Effects, Floats, Ints, SideColumns

ROWS = 400


def rows_of(codes: Sequence[Ints], y: Floats, names: Sequence[str] = ("user", "item")) -> EffectRows:
    n = len(y)
    heights = [int(code.max()) + 2 for code in codes]
    side = SideColumns(np.zeros((n, 0), np.int64), np.zeros((n, 0)))
    return EffectRows(names[: len(codes)], heights, (), np.stack(codes, 1), side, y)


def dense_posterior(codes: Sequence[Ints], y: Floats, effects: Effects, rows: EffectRows) -> tuple[Floats, Floats]:
    """Mean and covariance of all effects given the rest of the model, by inverting one matrix."""
    starts = np.cumsum([0, *rows.heights])
    design = np.zeros((len(y), starts[-1]))
    for start, code in zip(starts, codes, strict=False):
        design[np.arange(len(y)), start + code] = 1.0
    prior = np.concatenate([np.full(h, effects.priors[name]) for h, name in zip(rows.heights, rows.names, strict=True)])
    covariance: Floats = np.linalg.inv(np.diag(1.0 / prior) + design.T @ design / effects.noise).astype(np.float64)
    mean: Floats = covariance @ design.T @ (y - effects.side[0]) / effects.noise
    return mean, covariance


def test_one_feature_is_the_exact_posterior() -> None:
    random = np.random.default_rng(0)
    codes = random.integers(1, 40, ROWS)
    y = random.normal(size=41)[codes] + random.normal(size=ROWS)
    rows = rows_of([codes], y)
    effects = rows.fit(200)
    mean, covariance = dense_posterior([codes], y, effects, rows)
    np.testing.assert_allclose(effects.mean["user"][1:], mean[1:], atol=1e-6)
    np.testing.assert_allclose(effects.variance["user"], np.diag(covariance), rtol=1e-9)


def test_crossed_features_have_the_exact_mean_and_nearly_the_exact_variance() -> None:
    random = np.random.default_rng(1)
    users, items = random.integers(1, 30, 3000), random.integers(1, 20, 3000)
    y = 0.5 * random.normal(size=31)[users] + 0.5 * random.normal(size=21)[items] + random.normal(size=3000)
    rows = rows_of([users, items], y)
    effects = rows.fit(300)
    mean, covariance = dense_posterior([users, items], y, effects, rows)
    assert np.concatenate([effects.mean["user"], effects.mean["item"]]) == pytest.approx(mean, abs=2e-3)
    start = rows.heights[0]
    exact = np.diag(covariance)[users] + np.diag(covariance)[start + items] + 2 * covariance[users, start + items]
    served = effects.variance_of({"user": users, "item": items})
    assert served.mean() == pytest.approx(exact.mean(), rel=0.1)


@pytest.mark.parametrize("levels", [2, 3])
def test_nested_ids_have_the_exact_variance_of_their_sum(levels: int) -> None:
    random = np.random.default_rng(levels)
    video = random.integers(1, 60, 1500)
    author = random.integers(1, 15, 61)[video]
    country = random.integers(1, 5, 16)[author]
    codes = [video, author, country][:levels]
    y = sum((random.normal(size=62)[code] for code in codes), np.zeros(1500)) + random.normal(size=1500)
    names = ("video", "author", "country")
    rows = rows_of(codes, y, names)
    effects = rows.fit(30)
    assert effects.parents == dict(pairwise(names[:levels]))
    _, covariance = dense_posterior(codes, y, effects, rows)
    starts = np.cumsum([0, *rows.heights])
    places = np.stack([start + code for start, code in zip(starts, codes, strict=False)], 1)
    exact = np.array([covariance[np.ix_(place, place)].sum() for place in places])
    served = effects.variance_of(dict(zip(names, codes, strict=False)))
    np.testing.assert_allclose(served, exact, rtol=1e-8)
    unknown = {
        name: (np.zeros_like(code) if name == "video" else code) for name, code in zip(names, codes, strict=False)
    }
    above = np.array([covariance[np.ix_(place[1:], place[1:])].sum() for place in places])
    np.testing.assert_allclose(effects.variance_of(unknown), effects.priors["video"] + above, rtol=1e-8)


def test_crossed_ids_are_not_taken_for_nested() -> None:
    random = np.random.default_rng(0)
    once = np.arange(1, ROWS + 1)
    users = random.integers(1, 20, ROWS)
    assert rows_of([users, random.integers(1, 10, ROWS)], np.zeros(ROWS)).parents() == {}
    assert rows_of([once, users], np.zeros(ROWS)).parents() == {}


def test_known_variances_and_side_are_recovered_in_any_unit() -> None:
    random = np.random.default_rng(2)
    n = 60_000
    users, items = random.integers(1, 3000, n), random.integers(1, 1500, n)
    bucket, number = random.integers(0, 5, n), random.normal(size=n)
    truth = np.array([-1.0, 0.0, 0.5, 2.0, 1.0])[bucket] + 0.3 * number**2
    y = truth + 0.4 * random.normal(size=3001)[users] + 0.2 * random.normal(size=1501)[items] + random.normal(size=n)
    side = SideColumns(bucket[:, None], number[:, None])
    codes = np.stack([users, items], 1)
    effects = EffectRows(("user", "item"), (3001, 1501), (5,), codes, side, y).fit()
    assert effects.priors["user"] == pytest.approx(0.16, rel=0.1)
    assert effects.priors["item"] == pytest.approx(0.04, rel=0.15)
    assert effects.noise == pytest.approx(1.0, rel=0.03)
    scaled = EffectRows(("user", "item"), (3001, 1501), (5,), codes, side, 3600 * y).fit()
    np.testing.assert_allclose(scaled.variance["item"], 3600**2 * effects.variance["item"], rtol=1e-6)


def test_an_unknown_id_is_never_fitted() -> None:
    random = np.random.default_rng(3)
    codes = random.integers(0, 10, ROWS)
    effects = rows_of([codes], 5.0 * (codes == 0) + random.normal(size=ROWS)).fit()
    assert effects.mean["user"][0] == 0.0
    assert effects.variance["user"][0] == pytest.approx(effects.priors["user"])
    assert effects.variance["user"][0] == effects.variance["user"].max()


def test_leave_one_out_is_the_fit_without_the_row() -> None:
    random = np.random.default_rng(4)
    codes = random.integers(1, 30, ROWS)
    y = random.normal(size=31)[codes] + random.normal(size=ROWS)
    rows = rows_of([codes], y)
    effects = rows.fit(200)
    left_out, spread = rows.leave_one_out(effects)
    row = 7
    same = (codes == codes[row]) & (np.arange(ROWS) != row)
    variance = 1.0 / (1.0 / effects.priors["user"] + same.sum() / effects.noise)
    expected = effects.side[0] + variance / effects.noise * (y[same] - effects.side[0]).sum()
    assert spread[row] == pytest.approx(variance)
    assert left_out[row] == pytest.approx(expected, abs=1e-6)


def test_rows_in_files_give_the_same_effects() -> None:
    random = np.random.default_rng(5)
    codes, y = random.integers(1, 20, (ROWS, 2)), random.normal(size=ROWS).astype(np.float32)
    side = SideColumns(random.integers(0, 4, (ROWS, 1)), random.normal(size=(ROWS, 2)).astype(np.float32))
    batches = [
        (codes[s], SideColumns(side.buckets[s], side.numbers[s]), y[s]) for s in (slice(0, 150), slice(150, ROWS))
    ]
    in_files = EffectRows.gather(("user", "item"), (20, 20), (4,), 2, ROWS, batches, most_in_memory=10)
    assert isinstance(in_files.y, np.memmap)
    kept = EffectRows(("user", "item"), (20, 20), (4,), codes, side, y)
    np.testing.assert_allclose(in_files.fit().mean["item"], kept.fit().mean["item"], rtol=1e-12)
