"""Conformalised quantiles: the guarantee, a hand-worked case, and what is refused."""

import numpy as np
import pytest
import torch

from ghostless.heads.quantile import midpoint_levels
from research.baselines.conformalised import conformal_shifts


def test_intervals_cover_what_they_promise_whatever_the_model() -> None:
    """Quantiles of the wrong distribution, half as wide as they should be."""
    random = np.random.default_rng(0)
    levels = midpoint_levels(20)
    y = torch.from_numpy(random.normal(size=40_000)).float()
    wrong = (0.3 + 0.5 * torch.special.ndtri(levels)).expand(40_000, -1)
    shifted = wrong + conformal_shifts(wrong[:20_000], y[:20_000], levels)
    for lower in range(10):
        inside = (y[20_000:] >= shifted[20_000:, lower]) & (y[20_000:] <= shifted[20_000:, 19 - lower])
        assert inside.float().mean().item() == pytest.approx(1 - 2 * levels[lower].item(), abs=0.012)


def test_shift_is_the_order_statistic_of_how_far_rows_lie_outside() -> None:
    """Interval [0, 1] at 50%; four rows at 0.5, 1.2, -0.4, 3: scores -0.5, 0.2, 0.4, 2; the ceil(5 / 2)-th is 0.4."""
    m = torch.tensor([[0.0, 1.0]]).expand(4, -1)
    shifts = conformal_shifts(m, torch.tensor([0.5, 1.2, -0.4, 3.0]), torch.tensor([0.25, 0.75]))
    np.testing.assert_allclose(shifts, [-0.4, 0.4], atol=1e-6)


def test_levels_that_are_not_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="symmetric"):
        conformal_shifts(torch.zeros(3, 2), torch.zeros(3), torch.tensor([0.2, 0.7]))
