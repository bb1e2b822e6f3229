import numpy as np
import pytest
import torch
from scipy import stats

from ghostless.heads.bins import Bins, adaptive_bins
from ghostless.heads.warp import Warp, even_shares, rank_warp


def _targets(rows: int = 20_000, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    y = np.clip(random.lognormal(0.0, 1.0, rows), 0.0, 8.0)
    y[: rows // 5] = 0.0
    y[rows // 5 : rows // 4] = 2.0
    return y.astype(np.float32)


def _warp(bins: Bins, z: np.ndarray) -> Warp:
    return Warp(torch.from_numpy(bins.knots), torch.from_numpy(z))


def test_z_is_rank_and_distance_standardised() -> None:
    y = _targets()
    bins = adaptive_bins(y, 0.0, 8.0, 40)
    warp = _warp(bins, rank_warp(bins, y))
    z = warp.randomised(torch.from_numpy(y).double(), torch.rand(len(y), dtype=torch.float64)).numpy()
    assert z.mean() == pytest.approx(0.0, abs=0.02)
    assert z.std() == pytest.approx(1.0, abs=0.02)
    rank = (stats.rankdata(y, "average") - 0.5) / len(y)
    expected = 0.7 * rank + 0.3 * y / 8.0
    continuous = ~np.isin(y, bins.atoms)
    assert np.corrcoef(z[continuous], expected[continuous])[0, 1] > 0.9995


def test_an_atom_fills_an_interval_and_order_is_kept() -> None:
    y = _targets()
    bins = adaptive_bins(y, 0.0, 8.0, 40)
    warp = _warp(bins, rank_warp(bins, y))
    values, shares = torch.tensor([0.0, 0.0, 1.9, 2.0, 2.0, 2.1]).double(), torch.tensor([0.0, 1.0, 0.3, 0.0, 1.0, 0.9])
    z = warp.randomised(values, shares.double())
    assert (z.diff() > 0).all()
    # 20% of the rows: 0.7 x 0.2 of the unscaled axis, more than any bin of the same width 0 would get.
    assert z[1] - z[0] == pytest.approx((z[4] - z[3]).item() * 4.0, rel=0.05)


def test_a_gap_between_integers_has_no_z_and_keeps_its_distance() -> None:
    y = np.repeat([0.0, 1.0, 10.0], 100)
    bins = adaptive_bins(y, 0.0, 10.0, 40)
    z = rank_warp(bins, y)
    gaps = np.setdiff1d(np.arange(len(z) - 1), bins.classes)
    assert (np.diff(z)[gaps] == 0).all()
    middle = 0.5 * (z[1:] + z[:-1])[bins.classes]
    assert middle[2] - middle[1] > middle[1] - middle[0]
    assert _warp(bins, z).slopes().eq(0).all()


def test_slopes_are_those_of_the_inverse() -> None:
    y = _targets()
    bins = adaptive_bins(y, 0.0, 8.0, 40)
    warp = _warp(bins, rank_warp(bins, y))
    slopes = warp.slopes().numpy()
    for place in (3, 10, 30):
        middle = 0.5 * (bins.knots[place] + bins.knots[place + 1])
        step = 0.1 * (bins.knots[place + 1] - bins.knots[place])
        if step == 0:
            assert slopes[place] == 0
            continue
        ends = warp.randomised(torch.tensor([middle - step, middle + step]), torch.zeros(2).double())
        assert slopes[place] == pytest.approx(2 * step / (ends[1] - ends[0]).item(), rel=1e-6)


@pytest.mark.parametrize("unit", [3600.0, 1 / 60])
def test_z_has_no_unit(unit: float) -> None:
    y = _targets()
    bins = adaptive_bins(y, 0.0, 8.0, 40)
    scaled = adaptive_bins(y.astype(float) * unit, 0.0, 8.0 * unit, 40)
    np.testing.assert_allclose(rank_warp(scaled, y.astype(float) * unit), rank_warp(bins, y), atol=1e-3)


def test_even_shares_are_even() -> None:
    assert stats.kstest(even_shares(1000).numpy(), "uniform").statistic < 0.01


def test_a_range_far_wider_than_the_data_changes_little() -> None:
    y = np.random.default_rng(0).lognormal(0.0, 0.7, 20_000)
    near, far = adaptive_bins(y, 0.0, 30.0, 40), adaptive_bins(y, 0.0, 3000.0, 40)
    points = torch.tensor([0.3, 1.0, 2.0, 5.0]).double()
    one, other = (_warp(bins, rank_warp(bins, y)).randomised(points, torch.zeros(4).double()) for bins in (near, far))
    torch.testing.assert_close(one, other, atol=0.15, rtol=0.0)


def test_knots_beyond_the_data_are_read_at_infinity() -> None:
    y = np.random.default_rng(0).uniform(4.0, 6.0, 5_000)
    bins = adaptive_bins(y, 0.0, 10.0, 40)
    warp = _warp(bins, rank_warp(bins, y))
    read = warp.reading().numpy()
    counts = bins.shares(y)
    first, last = np.flatnonzero(counts)[[0, -1]]
    assert (read[: first + 1] == -1e4).all()
    assert (read[last + 1 :] == 1e4).all()
    assert (np.diff(read[first + 1 : last + 1]) > 0).all()
