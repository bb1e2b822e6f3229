"""Classification restoration under an isotropic Gaussian posterior of the logits: z ~ N(m, s^2 I)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ghostless.heads.closed_forms import piecewise
from ghostless.heads.closed_forms.saturation import saturated

PROBIT = math.pi / 8.0


def jensen_bound(m: Tensor, s2: Tensor, label: Tensor) -> Tensor:
    """Upper bound of E[NLL_CE(z, label)]: -m_y + logsumexp(m + s^2 / 2). m [n, K], s2 [n], label [n] -> [n].

    s^2 / 2 is the same for all bins, so it factors out of the log-sum-exp: only the margin to the label's logit trains
    m.
    """
    return torch.logsumexp(m, -1) + 0.5 * s2 - m.gather(-1, label.unsqueeze(-1)).squeeze(-1)


def jensen_bound_per_output(m: Tensor, s2: Tensor, label: Tensor) -> Tensor:
    """The same bound for the paper's literal posterior, with one variance per bin: s2 [n, K]."""
    return torch.logsumexp(m + 0.5 * s2, -1) - m.gather(-1, label.unsqueeze(-1)).squeeze(-1)


def probit_softmax(m: Tensor, s2: Tensor, temperature: Tensor | float = 1.0) -> Tensor:
    """E[softmax(z)] ~= softmax(m / (T sqrt(1 + pi/8 s^2))). m [n, K], s2 [n] -> [n, K]."""
    return torch.softmax(m / (temperature * torch.sqrt(1.0 + PROBIT * s2)).unsqueeze(-1), -1)


@dataclass(frozen=True)
class Decomposition:
    """A split of uncertainty [n]: aleatoric + epistemic = total, and neither is negative."""

    total: Tensor
    epistemic: Tensor
    # The paper's delta-method term. It is unbounded, so the paper's aleatoric part, total - delta, is negative far from
    # the data.
    delta: Tensor

    @property
    def aleatoric(self) -> Tensor:
        return self.total - self.epistemic


def gini_decomposition(p: Tensor, s2: Tensor) -> Decomposition:
    """Gini impurity of the bins and its split. p [n, K], s2 [n].

    The paper's Eq. (cr_epistemic) is d = s^2 (sum p^2 - 2 sum p^3 + (sum p^2)^2); the served value is d saturated at
    the total.
    """
    square = p * p
    sum2, sum3 = square.sum(-1), (square * p).sum(-1)
    # (sum p^2)^2 - 2 sum p^3 + sum p^2 = ||diag(p) - p p'||_F^2, which is negative only because of rounding.
    delta = s2 * (sum2 - 2.0 * sum3 + sum2 * sum2).clamp(min=0.0)
    total = (1.0 - sum2).clamp(min=0.0)
    return Decomposition(total, saturated(delta, total), delta)


def target_moments(
    p: Tensor, s2: Tensor, edges: Tensor, temperature: Tensor | float = 1.0
) -> tuple[Tensor, Decomposition]:
    """Mean [n] and split of the variance in target units, with y uniform inside its bin. p [n, K], s2 [n], edges [K +
    1].

    By the delta method, dE[y]/dz_k = p_k (b_k - mean) / T, so d = s^2 / T^2 sum p_k^2 (b_k - mean)^2. An atom is a
    bin of zero width.
    """
    mean, total = piecewise.moments(p, edges)
    centres = 0.5 * (edges[1:] + edges[:-1])
    delta = s2 / temperature**2 * (p * (centres - mean.unsqueeze(-1))).square().sum(-1)
    return mean, Decomposition(total, saturated(delta, total), delta)


def cdf_at_edges(p: Tensor) -> Tensor:
    """The histogram's CDF at its K + 1 edges. p [n, K] -> [n, K + 1]."""
    inner = torch.cumsum(p[..., :-1], -1)
    return torch.cat([torch.zeros_like(p[..., :1]), inner, torch.ones_like(p[..., :1])], -1)
