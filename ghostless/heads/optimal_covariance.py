"""The optimal covariance for CR's bound, in closed form.

As a function of S, the objective sum_i s_i^2 / 2 + beta KL does not depend on labels. Its optimum is

    S* = A^-1,   A = I / tau^2 + Phi' Phi / (beta K)

A diagonal or low-rank S is chosen to minimise the KL divergence from N(0, S*), that is tr(A S) - log det S. Truncating
S* to its largest eigenvalues would not minimise it, because there would be no variance in all other directions.
"""

import torch
from torch import Tensor

from ghostless.heads.posterior import Posterior

_ITERATIONS = 300


def precision(gram: Tensor, beta: float, outputs: int, tau: float) -> Tensor:
    """A [D, D], from gram = Phi' Phi [D, D] over all training rows."""
    return torch.eye(len(gram), dtype=gram.dtype) / tau**2 + gram / (beta * outputs)


@torch.no_grad()
def fit(posterior: Posterior, inverse: Tensor) -> None:
    """Set the posterior's S, in its own form, to the optimum for A [D, D] (float64)."""
    if posterior.covariance == "diagonal":
        posterior.log_sd.copy_(-0.5 * inverse.diagonal().log())
    elif posterior.covariance == "dense":
        lower = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(inverse)))
        posterior.log_sd.copy_(lower.diagonal().log())
        posterior.lower.copy_(lower.tril(-1))
    elif posterior.covariance == "lowrank":
        log_d, factor = low_rank(inverse, posterior.learned_factor.double())
        posterior.log_sd.copy_(0.5 * log_d)
        posterior.learned_factor.copy_(factor)


def low_rank(inverse: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """log d [D] and U [D, r] of the optimal S = diag(d) + U U', starting from a given U. In float64.

    The search is scaled by A's diagonal, so that the scale of features does not matter.
    """
    scale = inverse.diagonal().rsqrt()
    scaled = inverse * scale.unsqueeze(-1) * scale
    with torch.enable_grad():
        log_d = torch.zeros_like(scale).requires_grad_()
        factor = (start.detach() / scale.unsqueeze(-1)).requires_grad_()
        search = torch.optim.LBFGS(
            [log_d, factor],
            max_iter=_ITERATIONS,
            history_size=20,
            line_search_fn="strong_wolfe",
            tolerance_change=1e-12,
        )

        def objective() -> Tensor:
            search.zero_grad()
            value = divergence(scaled, log_d, factor)
            value.backward()
            return value

        search.step(objective)
    return (log_d + 2.0 * scale.log()).detach(), (factor * scale.unsqueeze(-1)).detach()


def divergence(inverse: Tensor, log_d: Tensor, factor: Tensor) -> Tensor:
    """tr(A S) - log det S of S = diag(d) + U U'."""
    d = log_d.exp()
    inner = torch.eye(factor.shape[1], dtype=d.dtype) + factor.T @ (factor / d.unsqueeze(-1))
    trace = inverse.diagonal() @ d + (factor * (inverse @ factor)).sum()
    value: Tensor = trace - log_d.sum() - torch.linalg.slogdet(inner).logabsdet
    return value
