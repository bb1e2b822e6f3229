"""Classification restoration under an isotropic Gaussian posterior of the logits: z ~ N(m, s^2 I)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ghostless.heads.closed_forms import piecewise

PROBIT = math.pi / 8.0


def jensen_bound(m: Tensor, s2: Tensor, label: Tensor) -> Tensor:
    """Upper bound of E[NLL_CE(z, label)]: -m_y + logsumexp(m + s^2 / 2). m [n, K], s2 [n], label [n] -> [n].

    Shared by all bins, s^2 / 2 leaves the log-sum-exp: only the margin to the label's own logit trains m.
    """
    return torch.logsumexp(m, -1) + 0.5 * s2 - m.gather(-1, label.unsqueeze(-1)).squeeze(-1)


def jensen_bound_per_output(m: Tensor, s2: Tensor, label: Tensor) -> Tensor:
    """The same bound for the paper's literal posterior, with one variance per bin: s2 [n, K]."""
    return torch.logsumexp(m + 0.5 * s2, -1) - m.gather(-1, label.unsqueeze(-1)).squeeze(-1)


def probit_softmax(m: Tensor, s2: Tensor) -> Tensor:
    """E[softmax(z)] ~= softmax(m / sqrt(1 + pi/8 s^2)). m [n, K], s2 [n] -> [n, K]."""
    return torch.softmax(m / torch.sqrt(1.0 + PROBIT * s2).unsqueeze(-1), -1)


def saturated(delta: Tensor, total: Tensor) -> Tensor:
    """A delta-method variance d kept within its total: d total / (d + total), d when small and total when large.

    The minimum is for rounding: where d is much the larger, the product may come out one step above the total.
    """
    return torch.minimum(delta * (total / (delta + total).clamp(min=torch.finfo(total.dtype).tiny)), total)


@dataclass(frozen=True)
class Decomposition:
    """A split of uncertainty [n]; aleatoric + epistemic = total, neither negative."""

    total: Tensor
    epistemic: Tensor
    # The paper's delta-method term, unbounded: its own aleatoric, total - delta, goes negative far from the data.
    delta: Tensor

    @property
    def aleatoric(self) -> Tensor:
        return self.total - self.epistemic


def gini_decomposition(p: Tensor, s2: Tensor) -> Decomposition:
    """Gini impurity of the bins and its split. p [n, K], s2 [n].

    The paper's Eq. (cr_epistemic) is d = s^2 (sum p^2 - 2 sum p^3 + (sum p^2)^2); served is d saturated at the total.
    """
    square = p * p
    sum2, sum3 = square.sum(-1), (square * p).sum(-1)
    # (sum p^2)^2 - 2 sum p^3 + sum p^2 = ||diag(p) - p p'||_F^2, never negative but for rounding.
    delta = s2 * (sum2 - 2.0 * sum3 + sum2 * sum2).clamp(min=0.0)
    total = (1.0 - sum2).clamp(min=0.0)
    return Decomposition(total, saturated(delta, total), delta)


def target_moments(p: Tensor, s2: Tensor, edges: Tensor) -> tuple[Tensor, Decomposition]:
    """Mean [n] and variance split in target units, y uniform inside its bin. p [n, K], s2 [n], edges [K + 1].

    The delta method again: dE[y]/dz_k = p_k (b_k - mean), so d = s^2 sum p_k^2 (b_k - mean)^2.
    """
    centres, widths = 0.5 * (edges[1:] + edges[:-1]), edges[1:] - edges[:-1]
    mean = p @ centres
    deviation = p * (centres - mean.unsqueeze(-1))
    total = (deviation * (centres - mean.unsqueeze(-1))).sum(-1) + p @ (widths.square() / 12.0)
    delta = s2 * deviation.square().sum(-1)
    return mean, Decomposition(total, saturated(delta, total), delta)


def cdf_at_edges(p: Tensor) -> Tensor:
    """The histogram's CDF at its K + 1 edges. p [n, K] -> [n, K + 1]."""
    inner = torch.cumsum(p[..., :-1], -1)
    return torch.cat([torch.zeros_like(p[..., :1]), inner, torch.ones_like(p[..., :1])], -1)


@dataclass(frozen=True)
class Histogram:
    """The CR predictive distribution: bin probabilities p [n, K] on edges [K + 1], posterior logit variance s2 [n]."""

    p: Tensor
    s2: Tensor
    edges: Tensor

    @property
    def logit_variance(self) -> Tensor:
        return self.s2

    def cdf(self, y: Tensor) -> Tensor:
        """F(y) at points y [p] or [n, p] -> [n, p], linear inside a bin."""
        return piecewise.interpolate(cdf_at_edges(self.p), self.edges, y)

    def density(self, y: Tensor) -> Tensor:
        """f(y) at points y [p] -> [n, p], constant inside a bin and 0 beyond the edges."""
        bins = torch.searchsorted(self.edges, y.contiguous(), right=True) - 1
        inside = (bins >= 0) & (bins < self.p.shape[-1])
        height = self.p / (self.edges[1:] - self.edges[:-1])
        return height[..., bins.clamp(0, self.p.shape[-1] - 1)] * inside

    def quantiles(self, levels: Tensor) -> Tensor:
        """Q(u) at levels [q] -> [n, q]."""
        return piecewise.quantiles(cdf_at_edges(self.p), self.edges, levels)

    def mean(self) -> Tensor:
        return target_moments(self.p, self.s2, self.edges)[0]

    def epistemic(self) -> Tensor:
        return target_moments(self.p, self.s2, self.edges)[1].epistemic

    def aleatoric(self) -> Tensor:
        return target_moments(self.p, self.s2, self.edges)[1].aleatoric

    def gini(self) -> Decomposition:
        return gini_decomposition(self.p, self.s2)
