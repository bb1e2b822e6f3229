"""The QR predictive distribution: a mixture of Gaussians over groups of neighbouring quantile levels.

Draw the level u ~ U(0, 1) and the weights; then y = w_u . phi. The K levels are divided into G groups of r = K / G
neighbours. Group g contributes N(c_g, a_g^2 s^2 + h_g^2), where c_g is the mean of its quantiles, a_g^2 the mean of its
a_k^2, and h_g^2 a kernel that fills the space between them: `bandwidth^2` times the variance of a piecewise-uniform
density through these quantiles. As s -> 0 this is the paper's reconstruction; as s grows it becomes flatter (its
"safety net"). Quantiles inside a group may cross, because nothing is sorted. The paper leaves the reconstruction open;
its trapezoid (Eq. qr_aleatoric) loses the mass of the tails, while these weights sum to 1.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ghostless.heads.closed_forms import bisection, normal

VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True)
class QuantileMixture:
    """G equally weighted Gaussians.

    centres:   [n, G]  c_g
    kernel:    [n, G]  h_g^2, variance of the reconstruction between neighbouring quantiles: aleatoric
    s2:        [n]     posterior variance phi' S phi, shared by all levels
    scales:    [K]     a_k: the posterior perturbation of level k is a_k eps, eps ~ N(0, s2), one eps for all levels
    """

    centres: Tensor
    kernel: Tensor
    s2: Tensor
    scales: Tensor

    @classmethod
    def from_levels(cls, m: Tensor, s2: Tensor, scales: Tensor, groups: int, bandwidth: float) -> "QuantileMixture":
        """From the K conditional quantiles m [n, K] and per-level scales [K]; K must be a multiple of `groups`."""
        centres = m.unflatten(-1, (groups, -1)).mean(-1)
        details = m @ detail_matrix(m.shape[-1], groups, bandwidth).to(m.dtype).T
        return cls(centres, details.unflatten(-1, (groups, -1)).square().sum(-1), s2, scales)

    @property
    def logit_variance(self) -> Tensor:
        return self.s2

    @property
    def sd(self) -> Tensor:
        """Standard deviation of each component [n, G]. With the floor, a collapsed component is a step instead of
        NaN."""
        groups = self.centres.shape[-1]
        squares = self.scales.square().unflatten(0, (groups, -1)).mean(-1)
        return torch.sqrt(self.s2.unsqueeze(-1) * squares + self.kernel + VARIANCE_FLOOR)

    def cdf(self, y: Tensor) -> Tensor:
        """F(y) at points y [n, p] or [p] -> [n, p]."""
        z = (y.unsqueeze(-1) - self.centres.unsqueeze(-2)) / self.sd.unsqueeze(-2)
        return normal.cdf(z).mean(-1)

    def cdf_before(self, y: Tensor) -> Tensor:
        """The same as `cdf`, because F is continuous."""
        return self.cdf(y)

    def scaled_cdf(self, y: Tensor) -> Tensor:
        """A(y) = mean_g a_g Phi((y - c_g) / sd_g) at points y [p] -> [n, p], a_g the mean of the group's a_k."""
        z = (y.unsqueeze(-1) - self.centres.unsqueeze(-2)) / self.sd.unsqueeze(-2)
        scales = self.scales.unflatten(0, (self.centres.shape[-1], -1)).mean(-1)
        scaled: Tensor = (normal.cdf(z) * scales).mean(-1)
        return scaled

    def density(self, y: Tensor) -> Tensor:
        """f(y) at points y [n, p] or [p] -> [n, p]."""
        sd = self.sd.unsqueeze(-2)
        return (normal.pdf((y.unsqueeze(-1) - self.centres.unsqueeze(-2)) / sd) / sd).mean(-1)

    def quantiles(self, levels: Tensor) -> Tensor:
        """Q(u) at levels [q] -> [n, q], by bisection of the CDF: exact, and quantiles never cross."""
        reach = self.sd.amax(-1, keepdim=True) * 8.0
        low, high = self.centres.amin(-1, keepdim=True) - reach, self.centres.amax(-1, keepdim=True) + reach
        return bisection.quantiles(self.cdf, low, high, levels)

    def mean(self) -> Tensor:
        """E[y] [n]."""
        return self.centres.mean(-1)

    def epistemic(self) -> Tensor:
        """Var_w(E[y | w]) [n]: the quantile curves move together by a_k eps."""
        return self.s2 * self.scales.mean().square()

    def aleatoric(self) -> Tensor:
        """E_w[Var(y | w)] [n]; with `epistemic` it adds up to the mixture's variance exactly."""
        spread = (self.centres - self.centres.mean(-1, keepdim=True)).square().mean(-1)
        return spread + self.kernel.mean(-1) + self.s2 * self.scales.var(correction=0)


@lru_cache
def detail_matrix(levels: int, groups: int, bandwidth: float) -> Tensor:
    """The linear map [G d, K] from quantiles to the differences that give the kernel, float64.

    Group g's kernel h_g^2 is the sum of squares of its d details. In a group of r > 1 these are an orthonormal basis of
    the deviations from c_g: r levels at spacing D have variance D^2 (r^2 - 1) / 12 about their mean, while their cells
    have (r D)^2 / 12; the scale corrects for this. A group of one uses its two neighbours.
    """
    size = levels // groups
    if size == 1:
        m = torch.eye(levels, dtype=torch.float64)
        after, before = torch.cat([m[1:], m[-1:]]), torch.cat([m[:1], m[:-1]])
        steps = torch.full((levels, 1), 2.0, dtype=torch.float64)
        steps[0] = steps[-1] = 1.0
        return (after - before) / steps * (bandwidth / math.sqrt(12.0))
    helmert = torch.zeros(size - 1, size, dtype=torch.float64)
    for row in range(1, size):
        helmert[row - 1, :row] = 1.0
        helmert[row - 1, row] = -row
        helmert[row - 1] /= math.sqrt(row * (row + 1))
    scale = bandwidth * math.sqrt(size / (size**2 - 1))
    details: Tensor = torch.block_diag(*[helmert * scale] * groups)
    return details
