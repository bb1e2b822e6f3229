"""The normal distribution's functions against scipy, where they are hard: far out and in float32."""

import numpy as np
import pytest
import torch
from scipy import special

from ghostless.heads.closed_forms import normal

Z = torch.cat([torch.linspace(-12.0, 12.0, 481), torch.tensor([-1e4, -40.0, 40.0, 1e4])])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-4)])
def test_cdf_keeps_its_relative_accuracy_in_the_left_tail(dtype: torch.dtype, tolerance: float) -> None:
    z = Z[Z > -12.5].to(dtype)
    np.testing.assert_allclose(normal.cdf(z), special.ndtr(z.double().numpy()), rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_log_erfcx(dtype: torch.dtype) -> None:
    z = torch.cat([torch.zeros(1), torch.logspace(-6, 6, 400)]).to(dtype)
    expected = np.log(special.erfcx(z.double().numpy()))
    tolerance = 2e-7 if dtype == torch.float64 else 4e-6
    np.testing.assert_allclose(normal.log_erfcx(z), expected, rtol=tolerance, atol=tolerance)


def test_unit_loss_is_even_positive_and_vanishes() -> None:
    z = Z.double()
    loss = normal.unit_loss(z)
    assert torch.equal(loss, normal.unit_loss(-z))
    assert (loss >= 0).all()
    assert loss[Z.abs() >= 40].eq(0).all()
    assert normal.unit_loss(torch.zeros(1)).item() == pytest.approx(0.3989422804)
