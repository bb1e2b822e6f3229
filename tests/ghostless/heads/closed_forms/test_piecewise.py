"""Piecewise-linear CDFs and their inverse against numpy."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ghostless.contract.distribution import LEAST_MASS
from ghostless.heads.closed_forms import piecewise

KNOTS = torch.tensor([0.0, 0.1, 0.5, 0.6, 1.5, 2.0, 3.0], dtype=torch.float64)
LEVELS = torch.linspace(0.005, 0.995, 100, dtype=torch.float64)
masses = arrays(np.float64, (3, 6), elements=st.floats(0.0, 1.0)).filter(lambda a: bool((a.sum(-1) > 0.1).all()))


def cdf_of(mass: torch.Tensor) -> torch.Tensor:
    inner = torch.cumsum(mass / mass.sum(-1, keepdim=True), -1)
    return torch.cat([torch.zeros(len(mass), 1, dtype=mass.dtype), inner], -1)


@settings(max_examples=100, deadline=None)
@given(masses)
def test_quantiles_never_cross_and_invert_to_within_the_least_mass(mass: np.ndarray) -> None:
    cdf = cdf_of(torch.from_numpy(mass))
    quantiles = piecewise.quantiles(cdf, KNOTS, LEVELS)
    assert (quantiles.diff(dim=-1) >= -1e-12).all()
    for row, values in zip(cdf.numpy(), quantiles.numpy(), strict=True):
        level = np.interp(values, KNOTS.numpy(), row)
        assert np.abs(level - LEVELS.numpy()).max() <= LEAST_MASS + 1e-9


@settings(max_examples=50, deadline=None)
@given(masses)
def test_quantiles_are_exact_where_no_segment_is_empty(mass: np.ndarray) -> None:
    cdf = cdf_of(torch.from_numpy(mass + 0.1))
    quantiles = piecewise.quantiles(cdf, KNOTS, LEVELS)
    for row, values in zip(cdf.numpy(), quantiles.numpy(), strict=True):
        np.testing.assert_allclose(values, np.interp(LEVELS.numpy(), row, KNOTS.numpy()), atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(masses)
def test_interpolate_agrees_with_numpy_inside_and_is_0_or_1_outside(mass: np.ndarray) -> None:
    cdf, points = cdf_of(torch.from_numpy(mass)), torch.linspace(-1.0, 4.0, 77, dtype=torch.float64)
    values = piecewise.interpolate(cdf, KNOTS, points)
    for row, heights in zip(cdf.numpy(), values.numpy(), strict=True):
        np.testing.assert_allclose(heights, np.interp(points.numpy(), KNOTS.numpy(), row), atol=1e-12)
