"""Effects of ids drawn from their Gaussian posterior, to check the variance that is served for their sum.

They are drawn from the fitted means and covariances, not from the columns that a graph uses
(ghostless.heads.effect_variance).
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from export.builder import Array
from ghostless.heads.effect_variance import EffectVariance

# A variance [n] with its standard error.
Estimate = tuple[Tensor, Tensor]


def sampled_variance(
    effects: EffectVariance, encoded: Mapping[str, Tensor], draws: int, seed: int
) -> tuple[Estimate, Estimate]:
    """Var(sum of a row's effects), and the same if the effects of context features alone are known."""
    random = np.random.default_rng(seed)
    codes = {name: encoded[name].numpy() for name in effects.names}
    every = frozenset(effects.names)
    # The same noise for both, so that they differ only by the context's part.
    noise = {name: random.standard_normal((draws, len(rows))) for name, rows in codes.items()}
    both = np.zeros((2, draws, len(next(iter(codes.values())))))
    for place, chosen in enumerate((every, every - effects.context)):
        for name in every - set(effects.parents.values()):
            both[place] += _chain(effects, name, codes, noise, chosen)
    if effects.factors is not None:
        whole, known = _pair(effects, codes, draws, random)
        both += np.stack([whole, known if effects.factors.pair[0] in effects.context else whole])
    first, second = (_estimate(drawn) for drawn in both)
    return first, second


def _chain(
    effects: EffectVariance, name: str, codes: Mapping[str, Array], noise: Mapping[str, Array], chosen: frozenset[str]
) -> Array:
    """[draws, n]: the sum of a chain's effects minus its mean. Given the effects above it, a nested effect has variance
    v and compensates their deviation, of which only the fraction v / t^2 remains."""
    rows, fitted = codes[name], effects.effects
    in_pair = effects.factors is not None and name in effects.factors.pair
    own = noise[name] * np.sqrt(0.0 if in_pair or name not in chosen else fitted.variance[name][rows])
    parent = effects.parents.get(name)
    if parent is None:
        return np.asarray(own)
    left = fitted.variance[name][rows] / fitted.priors[name] if name in chosen else 1.0
    return np.asarray(own + left * _chain(effects, parent, codes, noise, chosen))


def _pair(
    effects: EffectVariance, codes: Mapping[str, Array], draws: int, random: np.random.Generator
) -> tuple[Array, Array]:
    """[draws, n] each: a_u + b_v + p_u . q_v minus its mean, and the same with u fixed at its mean; both inflated."""
    factors = effects.factors
    assert factors is not None
    drawn = []
    for name, mean, covariance in zip(factors.pair, factors.means, factors.covariances, strict=True):
        lower = np.linalg.cholesky(covariance[codes[name]])
        noise = random.standard_normal((draws, *lower.shape[:2]))
        drawn.append(mean[codes[name]] + np.einsum("nij,dnj->dni", lower, noise))
    u, v = drawn
    spread = np.sqrt(factors.inflation)
    means = [mean[codes[name]] for name, mean in zip(factors.pair, factors.means, strict=True)]
    off = v - means[1]
    known = off[..., 0] + (means[0][:, 1:] * off[..., 1:]).sum(-1)
    u = u - means[0]
    return spread * (known + u[..., 0] + (u[..., 1:] * v[..., 1:]).sum(-1)), spread * known


def _estimate(drawn: Array) -> Estimate:
    """Variance and its standard error. drawn [draws, n] has mean 0."""
    squares = torch.from_numpy(drawn**2)
    return squares.mean(0), squares.std(0) / len(squares) ** 0.5
