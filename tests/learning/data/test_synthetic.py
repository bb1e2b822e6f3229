import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, truncnorm

from learning.data.synthetic import SyntheticVideos
from learning.data.table import Table
from learning.errors import DataError

ROWS = 20_000


@pytest.fixture(scope="module")
def world() -> SyntheticVideos:
    return SyntheticVideos(seed=7)


@pytest.fixture(scope="module")
def views(world: SyntheticVideos) -> Table:
    return world.sample(ROWS, seed=1)


def own_cdf(world: SyntheticVideos, views: Table) -> np.ndarray:
    """P(ratio <= the row's own ratio): uniform over rows, if the rows were drawn from the stated truth."""
    return np.array(
        [world.cdf(views.take(slice(i, i + 1)), views.target[i : i + 1].astype(float))[0, 0] for i in range(views.rows)]
    )


def test_samples_follow_the_stated_truth(world: SyntheticVideos, views: Table) -> None:
    assert kstest(own_cdf(world, views.take(slice(0, 4000))), "uniform").pvalue > 1e-3


def test_the_truth_of_another_world_is_rejected(views: Table) -> None:
    """The same check must notice a wrong truth, or it shows nothing."""
    assert kstest(own_cdf(SyntheticVideos(seed=8), views.take(slice(0, 4000))), "uniform").pvalue < 1e-3


def test_one_pairs_empirical_distribution(world: SyntheticVideos, views: Table) -> None:
    """Marginally over all rows, the empirical distribution is the average of the rows' own."""
    points = np.linspace(0.05, 2.95, 30)
    empirical = (views.target[:, None] <= points).mean(axis=0)
    assert np.abs(empirical - world.cdf(views, points).mean(axis=0)).max() < 1.95 / np.sqrt(ROWS)


def test_density_integrates_to_one_and_is_the_slope_of_the_cdf(world: SyntheticVideos, views: Table) -> None:
    for i in range(5):
        row = views.take(slice(i, i + 1))

        def density(y: float, row: Table = row) -> float:
            return float(world.density(row, np.array([y]))[0, 0])

        total = quad(density, 0, 3, points=[0.2, 1.0, 1.9], limit=200, epsabs=1e-10)[0]
        assert total == pytest.approx(1.0, abs=1e-8)
        below = quad(density, 0, 0.9, points=[0.2], limit=200, epsabs=1e-10)[0]
        assert world.cdf(row, np.array([0.9]))[0, 0] == pytest.approx(below, abs=1e-8)
        mean = quad(lambda y, f=density: y * f(y), 0, 3, points=[0.2, 1.0, 1.9], limit=200, epsabs=1e-10)[0]
        assert world.mean(row)[0] == pytest.approx(mean, abs=1e-8)


def test_mean_matches_the_samples(world: SyntheticVideos, views: Table) -> None:
    residual = views.target - world.mean(views)
    assert abs(residual.mean()) < 4 * residual.std() / np.sqrt(ROWS)


def test_nothing_lies_outside_the_range(world: SyntheticVideos, views: Table) -> None:
    assert views.target.min() >= 0.0
    assert views.target.max() <= 3.0
    outside = np.array([-1.0, -1e-9, 3.0 + 1e-9, 5.0])
    few = views.take(slice(0, 10))
    assert (world.density(few, outside) == 0).all()
    assert world.cdf(few, outside) == pytest.approx(np.tile([0.0, 0.0, 1.0, 1.0], (10, 1)))
    # No atoms: clipping to [0, 3] has moved nothing onto the ends.
    assert len(np.unique(views.target)) > 0.9 * ROWS


def test_three_modes_and_a_ghost_between_them(views: Table) -> None:
    counts = np.histogram(views.target, [0.0, 0.45, 0.75, 0.8, 1.2, 1.3, 1.5, 2.5])[0] / ROWS
    skip, _, gap, complete, second_gap, _, rewatch = counts
    assert min(skip, complete, rewatch) > 0.1
    assert max(gap, second_gap) < 0.02


def test_users_and_videos_come_up_as_zipf_says(world: SyntheticVideos, views: Table) -> None:
    for name, exponent in (("user_id", 0.8), ("video_id", 0.9)):
        counts = np.sort(np.unique(views.columns[name], return_counts=True)[1])[::-1][:50]
        slope = np.polyfit(np.log(np.arange(1, 51)), np.log(counts), 1)[0]
        assert slope == pytest.approx(-exponent, abs=0.1)


def test_users_and_videos_matter(world: SyntheticVideos, views: Table) -> None:
    """There is something to learn: the best prediction explains much of the variance."""
    assert np.var(world.mean(views)) > 0.25 * np.var(views.target)


def test_a_video_has_one_duration(views: Table) -> None:
    pairs = np.unique(np.stack([views.columns["video_id"], views.columns["duration_ms"]]), axis=1)
    assert len(np.unique(pairs[0])) == pairs.shape[1]


def test_seeds(world: SyntheticVideos, views: Table) -> None:
    assert world.sample(ROWS, seed=1).fingerprint() == views.fingerprint()
    assert world.sample(ROWS, seed=2).fingerprint() != views.fingerprint()
    assert SyntheticVideos(seed=8).sample(ROWS, seed=1).fingerprint() != views.fingerprint()


def test_an_unknown_user_has_no_truth(world: SyntheticVideos, views: Table) -> None:
    stranger = Table(views.schema, {**views.columns, "user_id": views.columns["user_id"] + 5000}, views.target)
    with pytest.raises(DataError, match="column 'user_id'"):
        world.mean(stranger)


def test_one_users_skips_against_scipy() -> None:
    """With one user and one video the density is a plain mixture, which scipy can fit the shape of."""
    world = SyntheticVideos(seed=3, users=1, items=1)
    views = world.sample(200_000, seed=0)
    complete = views.target[(views.target > 0.8) & (views.target < 1.2)]
    centre = float(np.median(complete))
    assert abs(centre - 1.0) < 0.15
    expected = truncnorm((0.8 - centre) / 0.06, (1.2 - centre) / 0.06, centre, 0.06)
    assert complete.std() == pytest.approx(expected.std(), rel=0.05)
