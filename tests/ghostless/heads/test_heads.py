"""Both heads as distributions with atoms: closed forms against sampling and numpy, calibration on fresh rows."""

import numpy as np
import pytest
import torch
from scipy import stats

from ghostless.contract import scores
from ghostless.heads.bins import Bins, adaptive_bins
from ghostless.heads.calibration import Calibration, apply_map
from ghostless.heads.config import PosteriorConfig, QuantileConfig
from ghostless.heads.histogram import Histogram, HistogramHead
from ghostless.heads.predictive import CalibratedReading, read_heights
from ghostless.heads.quantile import QuantileHead
from ghostless.heads.warp import rank_warp

FEATURES = 6
Head = HistogramHead | QuantileHead


def targets(rows: int = 6_000, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    y = np.clip(random.gamma(1.5, 1.0, rows), 0.0, 6.0)
    y[: rows // 4] = 0.0
    y[rows // 4 : rows // 3] = 2.0
    return random.permutation(y).astype(np.float32)


def built(kind: str, y: np.ndarray, count: int = 30, high: float = 6.0) -> tuple[Head, Bins]:
    torch.manual_seed(0)
    bins = adaptive_bins(y, 0.0, high, count)
    head: Head
    if kind == "cr":
        head = HistogramHead(bins, PosteriorConfig(), FEATURES)
    else:
        head = QuantileHead(QuantileConfig(), PosteriorConfig(), FEATURES, bins, rank_warp(bins, y))
    head.start_at(torch.from_numpy(np.sort(y)))
    return head.eval(), bins


@pytest.fixture(params=["cr", "qr"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_untrained_head_predicts_the_marginal_with_its_atoms(kind: str) -> None:
    y = targets()
    head, bins = built(kind, y)
    with torch.no_grad():
        predictive = head.predict(torch.zeros(1, FEATURES))
    for value in bins.atoms:
        at = torch.tensor([value], dtype=torch.float32)
        mass = (predictive.cdf(at) - predictive.cdf_before(at)).item()
        assert mass == pytest.approx((y == np.float32(value)).mean(), abs=0.02)
    assert predictive.mean().item() == pytest.approx(y.mean(), rel=0.03)
    assert predictive.variance().item() == pytest.approx(y.var(), rel=0.06)
    levels = torch.tensor([0.1, 0.3, 0.5, 0.9])
    assert predictive.quantiles(levels)[0].numpy() == pytest.approx(np.quantile(y, levels.numpy()), abs=0.12)


def test_moments_cdf_and_quantiles_are_those_of_draws(kind: str) -> None:
    head, _ = built(kind, targets())
    head.calibration = Calibration(1.0, tuple(np.float32(np.linspace(0, 1, 21) ** 1.2).astype(float).tolist()))
    with torch.no_grad():
        predictive = head.predict(torch.randn(3, FEATURES))
        heights, knots = predictive.heights.double().numpy(), predictive.knots.double().numpy()
        random = np.random.default_rng(0)
        masses = np.diff(heights)
        for row in range(3):
            segment = random.choice(len(knots) - 1, 100_000, p=masses[row] / masses[row].sum())
            drawn = knots[segment] + random.random(len(segment)) * np.diff(knots)[segment]
            assert predictive.mean()[row].item() == pytest.approx(drawn.mean(), abs=0.02)
            assert predictive.variance()[row].item() == pytest.approx(drawn.var(), rel=0.02)
            points = torch.tensor([0.0, 0.5, 2.0, 3.3, 6.0])
            at = [(drawn <= point).mean() for point in points.numpy()]
            assert predictive.cdf(points)[row].numpy() == pytest.approx(at, abs=0.006)
            below = [(drawn < point).mean() for point in points.numpy()]
            assert predictive.cdf_before(points)[row].numpy() == pytest.approx(below, abs=0.006)
            quantiles = predictive.quantiles(torch.tensor([0.05, 0.5, 0.95]))[row].numpy()
            for level, quantile in zip((0.05, 0.5, 0.95), quantiles, strict=True):
                assert (drawn < quantile - 1e-4).mean() - 0.006 <= level <= (drawn <= quantile + 1e-4).mean() + 0.006
    assert (predictive.aleatoric() > 0).all()
    torch.testing.assert_close(predictive.aleatoric() + predictive.epistemic(), predictive.variance())


def test_qr_reads_the_mixture_at_z_of_both_sides_of_an_atom() -> None:
    head, bins = built("qr", targets())
    assert isinstance(head, QuantileHead)
    with torch.no_grad():
        predictive = head.predict(torch.randn(4, FEATURES))
        m = predictive.mixture
        place = int(np.flatnonzero((bins.widths == 0) & (bins.knots[:-1] == 2.0))[0])
        for side in (place, place + 1):
            z = (head.z[side] - m.centres.double()) / m.sd.double()
            expected = stats.norm.cdf(z.numpy()).mean(-1)
            assert predictive.heights[:, side].numpy() == pytest.approx(expected, abs=1e-6)
    assert head.z[place + 1] > head.z[place]


def test_qr_last_layer_variance_is_how_far_the_mean_moves() -> None:
    """Shift all levels by a_k eps, and read the mean of the clipped, warped distribution each time."""
    head, _ = built("qr", targets(), count=60)
    assert isinstance(head, QuantileHead)
    with torch.no_grad():
        head.posterior.log_scales.normal_(0.0, 0.3)
        phi = 0.3 * torch.randn(400, FEATURES)
        m, s2 = head.posterior.outputs(phi), torch.full((400,), 1e-4)
        mixture = head.mixture(m, phi)
        kernel, scales = mixture.kernel, head.posterior.scales

        def mean_at(eps: float) -> torch.Tensor:
            moved = head.mixture(m + scales * eps, phi)
            still = type(moved)(moved.centres, kernel, torch.zeros(400), scales)
            return type(head.read(m, phi))(still, head.warp).mean()

        slope = (mean_at(0.01) - mean_at(-0.01)) / 0.02
        own = type(mixture)(mixture.centres, kernel, s2, scales)
        served = type(head.read(m, phi))(own, head.warp).last_layer_variance()
    # The mean is read between knots, where it bends; rows that sit on a bend are some percent off.
    low, middle, high = (served / (s2 * slope.square())).quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
    assert middle == pytest.approx(1.0, abs=0.01)
    assert 0.97 < low <= high < 1.03


def test_cr_last_layer_variance_falls_with_the_temperature() -> None:
    p, edges = torch.softmax(torch.randn(3, 4), -1), torch.tensor([0.0, 0.0, 1.0, 2.0, 2.0])
    one, two = (Histogram(p, torch.full((3,), 0.3), edges, t).last_layer_variance() for t in (1.0, 2.0))
    torch.testing.assert_close(one, 4.0 * two)


def test_a_discrete_target_has_no_mass_between_its_values(kind: str) -> None:
    y = np.random.default_rng(0).binomial(20, 0.4, 5_000).astype(np.float32)
    head, bins = built(kind, y, high=20.0)
    with torch.no_grad():
        predictive = head.predict(torch.randn(8, FEATURES))
    gaps = np.setdiff1d(np.arange(len(bins.knots) - 1), bins.classes)
    assert predictive.masses[:, gaps].abs().max() < 1e-6
    quantiles = predictive.quantiles(torch.linspace(0.05, 0.95, 10))
    # But for a level within LEAST_MASS of a step, where the value ramps from one integer to the next.
    assert ((quantiles - quantiles.round()).abs() < 1e-4).float().mean() > 0.9
    loss = head.loss(torch.randn(3, FEATURES), torch.tensor([0.0, 7.0, 20.0]))
    assert loss.isfinite().all()


def test_calibration_repairs_a_wrong_head_on_fresh_rows(kind: str) -> None:
    """The head knows the marginal of other targets than those that come: too low, and with too large an atom."""
    head, _ = built(kind, targets())
    random = np.random.default_rng(7)
    come = targets(12_000, seed=1)
    come = np.where((come == 0) & (random.random(12_000) < 0.5), random.gamma(2.5, 1.2, 12_000), come)
    come = np.clip(come, 0.0, 6.0).astype(np.float32)
    phi, y = torch.zeros(12_000, FEATURES), torch.from_numpy(come)

    def pit(distribution: torch.Tensor) -> float:
        knots = head.knots.double().numpy()
        before, at = scores.pit(distribution.double().numpy(), knots, come[6_000:].astype(np.float64))
        u = before + np.random.default_rng(0).random(6_000) * (at - before)
        return float(stats.kstest(u, "uniform").statistic)

    with torch.no_grad():
        assert pit(head.predict(phi[6_000:]).heights) > 0.08
        assert head.calibrate(phi[:6_000], y[:6_000]) == head.calibration
        assert pit(head.predict(phi[6_000:]).heights) < 0.035


def test_the_map_is_read_by_everything(kind: str) -> None:
    head, _ = built(kind, targets())
    heights = torch.linspace(0, 1, 21) ** 1.5
    head.calibration = Calibration(1.0, tuple(float(v) for v in heights))
    phi = torch.randn(5, FEATURES)
    with torch.no_grad():
        raw, mapped = head.uncalibrated(phi), head.predict(phi)
        torch.testing.assert_close(mapped.heights, apply_map(raw.heights, heights), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(mapped.masses, mapped.heights.diff(dim=-1), atol=1e-6, rtol=1e-4)
        assert (mapped.mean() > raw.mean()).all()
        reading = CalibratedReading(raw, head.knots, heights)
        torch.testing.assert_close(reading.heights, mapped.heights, atol=1e-6, rtol=1e-5)
        share = raw.epistemic() / raw.variance()
        torch.testing.assert_close(reading.epistemic(), share * reading.variance(), rtol=1e-3, atol=1e-9)


def test_calibration_travels_with_the_weights(kind: str) -> None:
    head, _ = built(kind, targets())
    head.calibration = Calibration(1.25, tuple(float(v) for v in torch.linspace(0, 1, 21) ** 1.1))
    other, _ = built(kind, targets())
    other.load_state_dict(head.state_dict())
    assert other.calibration == head.calibration
    assert not other.calibration.is_identity


def test_reading_at_other_knots_keeps_atoms_apart() -> None:
    p = torch.tensor([[0.3, 0.2, 0.4, 0.1]])
    histogram = Histogram(p, torch.zeros(1), torch.tensor([0.0, 0.0, 1.0, 1.0, 2.0]))
    knots = torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0, 1.5, 2.0])
    torch.testing.assert_close(read_heights(histogram, knots)[0], torch.tensor([0.0, 0.3, 0.4, 0.5, 0.9, 0.95, 1.0]))
