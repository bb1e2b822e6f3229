"""The paper's distribution from quantiles: a CDF that is linear between them (appendix on vanilla QR, Eq.
qr_aleatoric).

Below the first quantile and above the last there is only the mass of their levels. With a posterior the curve as a
whole moves by eps ~ N(0, s^2), so each linear piece is a uniform distribution with Gaussian noise, in closed form.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ghostless.heads.closed_forms import bisection, normal
from ghostless.heads.quantile import QuantileHead

# As a fraction of s: a narrower piece is a step in float32.
STEP = 1e-2
LEAST_SD = 1e-6


@dataclass(frozen=True)
class InterpolatedQuantiles:
    """places: sorted quantiles [n, K]; levels [K]; s2: [n], variance of the shared shift; shapes as in `Predictive`."""

    places: Tensor
    levels: Tensor
    s2: Tensor

    @classmethod
    def from_levels(cls, m: Tensor, s2: Tensor, levels: Tensor) -> "InterpolatedQuantiles":
        """From quantiles m [n, K] that may cross; they are sorted, as is usual."""
        return cls(m.sort(-1).values, levels, s2)

    @property
    def logit_variance(self) -> Tensor:
        return self.s2

    def mean(self) -> Tensor:
        """The paper's mean over [kappa_1, kappa_K], divided by the mass that it covers."""
        steps = self.levels.diff()
        return ((0.5 * (self.places[:, 1:] + self.places[:, :-1])) @ steps) / steps.sum()

    def aleatoric(self) -> Tensor:
        """Eq. (qr_aleatoric), divided by the mass that it covers."""
        low, high, steps = self.places[:, :-1], self.places[:, 1:], self.levels.diff()
        second = ((low.square() + low * high + high.square()) / 3.0) @ steps / steps.sum()
        return (second - self.mean().square()).clamp(min=0.0)

    def epistemic(self) -> Tensor:
        return self.s2

    def cdf(self, y: Tensor) -> Tensor:
        """F(y) at points y [p] or [n, p] -> [n, p]."""
        at = y.expand(len(self.places), -1).contiguous()
        return self._moved(at) if self.s2.any() else self._still(at)

    def cdf_before(self, y: Tensor) -> Tensor:
        """Coinciding quantiles form a step; its lower and upper sides are not distinguished."""
        return self.cdf(y)

    def _still(self, y: Tensor) -> Tensor:
        """Without a posterior: 0 before the first quantile, 1 from the last on, linear between."""
        right = torch.searchsorted(self.places, y, right=True)
        left = (right - 1).clamp(0, len(self.levels) - 2)
        low, high = self.places.gather(-1, left), self.places.gather(-1, left + 1)
        share = ((y - low) / (high - low).clamp(min=torch.finfo(y.dtype).tiny)).clamp(0.0, 1.0)
        inside = self.levels[left] + share * (self.levels[left + 1] - self.levels[left])
        return torch.where(right == 0, 0.0, torch.where(right == len(self.levels), 1.0, inside))

    def _moved(self, y: Tensor) -> Tensor:
        """Each piece is U(low, high) + N(0, s^2): its CDF is the difference of Phi's integral at its ends, divided by
        the width. A piece too narrow for that is treated as a step at its middle."""
        # The difference of neighbours loses most digits, so a CDF in single precision could decrease.
        at, places, levels = y.double(), self.places.double(), self.levels.double()
        sd = torch.sqrt(self.s2).clamp(min=LEAST_SD).double()[:, None]
        total = levels[0] * normal.cdf((at - places[:, :1]) / sd)
        total += (1.0 - levels[-1]) * normal.cdf((at - places[:, -1:]) / sd)
        before = _integral(at - places[:, :1], sd)
        for piece, mass in enumerate(levels.diff(), start=1):
            low, high = places[:, piece - 1, None], places[:, piece, None]
            after, width = _integral(at - high, sd), high - low
            narrow = width <= STEP * sd
            step = normal.cdf((at - 0.5 * (low + high)) / sd)
            total += mass * torch.where(narrow, step, (before - after) / width.clamp(min=LEAST_SD))
            before = after
        return total.clamp(0.0, 1.0).to(y.dtype)

    def density(self, y: Tensor) -> Tensor:
        """f(y) by central differences of the CDF over a ten-thousandth of the quantiles' span."""
        step = 5e-5 * (self.places[:, -1] - self.places[:, 0]).clamp(min=LEAST_SD)[:, None]
        at = y.expand(len(self.places), -1)
        return (self.cdf(at + step) - self.cdf(at - step)) / (2.0 * step)

    def quantiles(self, levels: Tensor) -> Tensor:
        reach = 8.0 * torch.sqrt(self.s2).clamp(min=LEAST_SD)[:, None]
        return bisection.quantiles(self.cdf, self.places[:, :1] - reach, self.places[:, -1:] + reach, levels)


def _integral(t: Tensor, sd: Tensor) -> Tensor:
    """Integral of Phi(t / sd) up to t."""
    z = t / sd
    return t * normal.cdf(z) + sd * normal.pdf(z)


def read(head: QuantileHead, m: Tensor, phi: Tensor) -> InterpolatedQuantiles:
    """Quantiles m [n, K] of a head, vanilla or with a posterior, as a distribution in the paper's way; phi [n, D]."""
    variance = head.posterior.variance(phi)
    if variance.dim() == 2:
        variance = variance.mean(-1)
    return InterpolatedQuantiles.from_levels(m, variance * head.posterior.scales.mean().square(), head.levels)
