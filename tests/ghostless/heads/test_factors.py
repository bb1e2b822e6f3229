"""Factors of two ids: variances against sampled posteriors, and against a world whose truth is known."""

import numpy as np
import pytest

from ghostless.heads.effects import EffectRows, SideColumns
from ghostless.heads.factors import Factors, fit_factors

PAIR = ("user", "video")


def random_factors(rank: int, inflation: float = 1.0) -> Factors:
    random = np.random.default_rng(rank)

    def covariances(rows: int) -> np.ndarray:
        root = random.normal(size=(rows, rank + 1, rank + 1))
        return root @ root.transpose(0, 2, 1) / (rank + 1)

    means = random.normal(size=(4, rank + 1)), random.normal(size=(3, rank + 1))
    return Factors(PAIR, means, (covariances(4), covariances(3)), 1.0, inflation)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_variance_is_that_of_posterior_draws(rank: int) -> None:
    factors = random_factors(rank)
    random = np.random.default_rng(9)
    codes = {"user": np.repeat(np.arange(4), 3), "video": np.tile(np.arange(3), 4)}
    for user, video, expected in zip(codes["user"], codes["video"], factors.variance_of(codes), strict=True):
        first, second = (
            random.multivariate_normal(factors.means[side][row], factors.covariances[side][row], 400_000)
            for side, row in ((0, user), (1, video))
        )
        drawn = first[:, 0] + second[:, 0] + (first[:, 1:] * second[:, 1:]).sum(1)
        assert drawn.var() == pytest.approx(expected, rel=0.03)
        assert drawn.mean() == pytest.approx(
            factors.mean_of({"user": np.array([user]), "video": np.array([video])})[0], abs=0.05
        )


@pytest.mark.parametrize("name", PAIR)
def test_roots_give_the_covariance_of_rows_that_share_an_id(name: str) -> None:
    factors = random_factors(3, inflation=1.5)
    side = PAIR.index(name)
    other = PAIR[1 - side]
    codes = {name: np.array([2, 2]), other: np.array([0, 1])}
    roots = factors.roots(codes, name)
    known = factors.means[1 - side][[0, 1]].copy()
    known[:, 0] = 1.0
    expected = 1.5 * known[0] @ factors.covariances[side][2] @ known[1]
    assert roots[0] @ roots[1] == pytest.approx(expected)


def test_the_first_half_is_what_needs_the_first_ids_variance() -> None:
    factors = random_factors(2)
    known = Factors(PAIR, factors.means, (np.zeros_like(factors.covariances[0]), factors.covariances[1]), 1.0)
    np.testing.assert_allclose(known.left()[:, 6:], factors.left()[:, 6:])
    assert factors.left().shape == (4, 12)
    assert not known.left()[:, :6].any()


def world(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, y and the noiseless mean of 300 users and 200 videos whose tastes and topics meet in two ways."""
    truth = np.random.default_rng(0)
    users, videos = truth.normal(size=(301, 3)), truth.normal(size=(201, 3))
    random = np.random.default_rng(seed)
    codes = np.stack([random.integers(1, 301, rows), random.integers(1, 201, rows)], 1)
    first, second = users[codes[:, 0]], videos[codes[:, 1]]
    mean = 5.0 + 0.5 * first[:, 0] + 0.5 * second[:, 0] + 0.5 * (first[:, 1:] * second[:, 1:]).sum(1)
    return codes, mean + random.normal(size=rows), mean


def rows_of(codes: np.ndarray, y: np.ndarray, scale: float = 1.0) -> EffectRows:
    none = SideColumns(np.zeros((len(y), 0), int), np.zeros((len(y), 0)))
    return EffectRows(PAIR, (301, 201), (), codes, none, scale * y)


@pytest.fixture(scope="module")
def fitted() -> Factors:
    codes, y, _ = world(12_000, 1)
    rows = rows_of(codes, y)
    return fit_factors(rows, rows.fit(), PAIR, 2)


def test_variance_adds_up_to_the_squared_error(fitted: Factors) -> None:
    codes, y, mean = world(20_000, 2)
    held = {"user": codes[:, 0], "video": codes[:, 1]}
    predicted = 5.0 + fitted.mean_of(held)
    # The intercept of the side regression is what is left over.
    predicted += (y - predicted).mean()
    inflated = fitted.inflated(held, y - predicted, np.zeros(len(y)))
    assert 1.0 <= inflated.inflation < 2.0
    squared = (predicted - mean) ** 2
    # What the noise is estimated too low, here 2%, the inflation counts as ignorance.
    assert fitted.noise == pytest.approx(1.0, rel=0.03)
    assert inflated.variance_of(held).mean() == pytest.approx(squared.mean() + 1.0 - fitted.noise, rel=0.1)


def test_an_unknown_id_has_the_priors(fitted: Factors) -> None:
    np.testing.assert_array_equal(fitted.means[0][0], 0.0)
    known = np.diagonal(fitted.covariances[0][1:], axis1=1, axis2=2)
    assert (np.diag(fitted.covariances[0][0]) > known.max(0)).all()


def test_no_unit_matters(fitted: Factors) -> None:
    codes, y, _ = world(12_000, 1)
    rows = rows_of(codes, y, scale=3600.0)
    scaled = fit_factors(rows, rows.fit(), PAIR, 2)
    held = {"user": codes[:500, 0], "video": codes[:500, 1]}
    np.testing.assert_allclose(scaled.mean_of(held), 3600.0 * fitted.mean_of(held), rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(scaled.variance_of(held), 3600.0**2 * fitted.variance_of(held), rtol=1e-5)
