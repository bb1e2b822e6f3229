"""The QR predictive distribution against its definition, its own integrals and draws of level and weights."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from ghostless.heads.closed_forms.quantile_mixture import QuantileMixture, detail_matrix

LEVELS = 20
SPREADS = (1e-6, 1e-3, 0.1, 1.0, 1e4)


def draw_levels(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """m [5, K], s2 [5] over ten decades of s, scales [K]."""
    generator = torch.Generator().manual_seed(seed)
    u = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    m = u + torch.sigmoid((u - 0.5) / 0.05) + 0.05 * torch.randn(len(SPREADS), LEVELS, generator=generator)
    return m, torch.tensor(SPREADS, dtype=torch.float64) ** 2, torch.exp(0.5 * torch.sin(6 * u))


def mixture(groups: int, dtype: torch.dtype = torch.float64) -> QuantileMixture:
    m, s2, scales = draw_levels()
    return QuantileMixture.from_levels(m.to(dtype), s2.to(dtype), scales.to(dtype), groups, 1.5)


@pytest.mark.parametrize("groups", [4, 5, 20])
class TestDistribution:
    def test_density_is_the_derivative_of_the_cdf(self, groups: int) -> None:
        predictive = mixture(groups)
        y = predictive.quantiles(torch.linspace(0.05, 0.95, 19, dtype=torch.float64))
        step = 1e-5 * predictive.sd.amin(-1, keepdim=True)
        slope = (predictive.cdf(y + step) - predictive.cdf(y - step)) / (2 * step)
        torch.testing.assert_close(predictive.density(y), slope, rtol=1e-4, atol=0.0)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_cdf_rises_from_0_to_1(self, groups: int, dtype: torch.dtype) -> None:
        predictive = mixture(groups, dtype)
        reach = predictive.sd.amax(-1, keepdim=True) * 9 + 5
        y = torch.linspace(-1.0, 1.0, 501, dtype=dtype) * reach
        cdf = predictive.cdf(y)
        assert (cdf.diff(dim=-1) >= -1e-6).all()
        assert cdf[:, 0].abs().max() < 1e-6
        assert (1 - cdf[:, -1]).abs().max() < 1e-6

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
    def test_quantiles_invert_the_cdf_and_never_cross(self, groups: int, dtype: torch.dtype, tolerance: float) -> None:
        levels = torch.linspace(0.01, 0.99, 99, dtype=dtype)
        quantiles = mixture(groups, dtype).quantiles(levels)
        assert (quantiles.diff(dim=-1) >= 0).all()
        torch.testing.assert_close(
            mixture(groups, dtype).cdf(quantiles), levels.expand(len(SPREADS), -1), rtol=0.0, atol=tolerance
        )

    def test_aleatoric_and_epistemic_add_up_to_the_variance(self, groups: int) -> None:
        predictive = mixture(groups)
        variance = predictive.sd.square().mean(-1) + predictive.centres.var(-1, correction=0)
        torch.testing.assert_close(predictive.aleatoric() + predictive.epistemic(), variance, rtol=1e-9, atol=1e-11)

    def test_spread_of_the_weights_is_split_as_draws_of_a_shared_eps_say(self, groups: int) -> None:
        m, s2, scales = draw_levels()
        predictive = mixture(groups)
        eps = s2.sqrt()[:, None] * torch.randn(50_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        answers = m[:, None] + eps[..., None] * scales
        epistemic = answers.mean(-1).var(-1)
        torch.testing.assert_close(predictive.epistemic(), epistemic, rtol=0.03, atol=0.0)
        kernel = predictive.kernel.mean(-1)
        # Within a group the levels' own deviations are what the kernel stands for.
        centres = predictive.centres.repeat_interleave(LEVELS // groups, -1)
        given_eps = (centres[:, None] + eps[..., None] * scales).var(-1, correction=0).mean(-1) + kernel
        torch.testing.assert_close(predictive.aleatoric(), given_eps, rtol=0.03, atol=0.0)


class TestKernel:
    @pytest.mark.parametrize(("levels", "groups"), [(100, 25), (100, 20), (100, 50), (12, 3), (30, 30)])
    def test_equally_spaced_levels_are_filled_uniformly(self, levels: int, groups: int) -> None:
        """r cells of width D side by side are one uniform density of width r D: variance (r D)^2 / 12."""
        spacing = 0.03
        m = spacing * torch.arange(levels, dtype=torch.float64).unsqueeze(0)
        zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(levels, dtype=torch.float64)
        predictive = QuantileMixture.from_levels(m, zero, one, groups, bandwidth=1.0)
        expected = (levels // groups * spacing) ** 2 / 12.0
        torch.testing.assert_close(predictive.kernel, torch.full_like(predictive.kernel, expected))
        # So all of them together have the variance of the uniform density over the whole range.
        total = predictive.aleatoric().item()
        assert total == pytest.approx((levels * spacing) ** 2 / 12.0, rel=1e-9)

    def test_bandwidth_scales_the_standard_deviation(self) -> None:
        once, twice = detail_matrix(20, 5, 1.0), detail_matrix(20, 5, 2.0)
        torch.testing.assert_close(twice, 2.0 * once)

    @pytest.mark.parametrize(("levels", "groups"), [(20, 5), (20, 20)])
    def test_does_not_see_where_the_group_lies(self, levels: int, groups: int) -> None:
        shift = detail_matrix(levels, groups, 1.0) @ torch.ones(levels, dtype=torch.float64)
        assert shift.abs().max() < 1e-12

    def test_order_inside_a_group_does_not_matter(self) -> None:
        m, s2, scales = draw_levels()
        swapped = m.unflatten(-1, (5, -1)).flip(-1).flatten(-2)
        one = torch.ones_like(scales)
        before = QuantileMixture.from_levels(m, s2, one, 5, 1.5)
        after = QuantileMixture.from_levels(swapped, s2, one, 5, 1.5)
        torch.testing.assert_close(after.kernel, before.kernel)
        torch.testing.assert_close(after.centres, before.centres)


def test_is_the_normal_mixture_it_says_it_is() -> None:
    predictive = mixture(5)
    y = torch.linspace(-2.0, 4.0, 50, dtype=torch.float64)
    centres, sd = predictive.centres.numpy()[:, None], predictive.sd.numpy()[:, None]
    np.testing.assert_allclose(predictive.cdf(y), stats.norm.cdf(y.numpy()[:, None], centres, sd).mean(-1), atol=1e-12)


def test_a_large_spread_flattens_the_density() -> None:
    predictive = mixture(5)
    peaks = predictive.density(torch.linspace(-3.0, 5.0, 2001, dtype=torch.float64)).amax(-1)
    assert (peaks.diff() < 0).all()
    assert peaks[-1] < 1e-4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_collapsed_quantiles_are_a_step_not_a_nan(dtype: torch.dtype) -> None:
    m, zero = torch.full((1, 20), 0.5, dtype=dtype), torch.zeros(1, dtype=dtype)
    predictive = QuantileMixture.from_levels(m, zero, torch.ones(20, dtype=dtype), 5, 1.5)
    assert predictive.cdf(torch.tensor([0.4, 0.6], dtype=dtype)).tolist() == [[0.0, 1.0]]
    assert predictive.quantiles(torch.tensor([0.5], dtype=dtype)).item() == pytest.approx(0.5, abs=1e-5)
    assert predictive.density(torch.tensor([0.5, 9.0], dtype=dtype)).isfinite().all()
