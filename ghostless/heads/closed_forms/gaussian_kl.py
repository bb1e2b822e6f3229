"""KL(q || p) for K last-layer weight vectors of D features: q(w_k) = N(mean_k, a_k^2 S), p = N(0, tau^2 I)."""

import math

import torch
from torch import Tensor


def _kl(mean: Tensor, scales: Tensor, trace: Tensor, log_determinant: Tensor, tau: float) -> Tensor:
    outputs, features = mean.shape
    second_moment = scales.square().sum() * trace + mean.square().sum()
    entropy = outputs * log_determinant + 2.0 * features * torch.log(scales).sum()
    constant = outputs * features * (2.0 * math.log(tau) - 1.0)
    return 0.5 * (second_moment / tau**2 - entropy + constant)


def dense(mean: Tensor, scales: Tensor, cholesky: Tensor, tau: float) -> Tensor:
    """S = L L'. mean [K, D], scales [K], cholesky [D, D] lower triangular with positive diagonal -> scalar."""
    log_determinant = 2.0 * torch.log(cholesky.diagonal()).sum()
    return _kl(mean, scales, cholesky.square().sum(), log_determinant, tau)


def low_rank(mean: Tensor, scales: Tensor, diagonal: Tensor, factor: Tensor, tau: float) -> Tensor:
    """S = diag(diagonal) + U U'. diagonal [D] (variances), factor [D, r] -> scalar.

    |S| is computed by the matrix determinant lemma: an r x r determinant instead of a D x D one.
    """
    inner = torch.eye(factor.shape[1], dtype=factor.dtype) + factor.T @ (factor / diagonal.unsqueeze(-1))
    log_determinant = torch.log(diagonal).sum() + torch.logdet(inner)
    return _kl(mean, scales, diagonal.sum() + factor.square().sum(), log_determinant, tau)


def diagonal(mean: Tensor, scales: Tensor, variance: Tensor, tau: float) -> Tensor:
    """S = diag(variance). variance [D] -> scalar."""
    return _kl(mean, scales, variance.sum(), torch.log(variance).sum(), tau)


def per_output(mean: Tensor, scales: Tensor, cholesky: Tensor, tau: float) -> Tensor:
    """The paper's literal q(W) = prod_k N(mean_k, a_k^2 S_k), S_k = L_k L_k'. scales [K], cholesky [K, D, D] -> scalar.

    a_k could be part of L_k; it is separate so that all forms have the same parameters.
    """
    outputs, features = mean.shape
    second_moment = scales.square() @ cholesky.square().sum((-2, -1)) + mean.square().sum()
    log_determinant = 2.0 * torch.log(cholesky.diagonal(dim1=-2, dim2=-1)).sum()
    log_determinant = log_determinant + 2.0 * features * torch.log(scales).sum()
    return 0.5 * (second_moment / tau**2 - log_determinant + outputs * features * (2.0 * math.log(tau) - 1.0))
