"""Configuration of heads: frozen value objects, so that heads do not depend on the training application."""

from dataclasses import dataclass
from typing import Literal

HeadName = Literal["qr", "cr"]
CovarianceName = Literal["dense", "lowrank", "diagonal", "per-output"]


@dataclass(frozen=True)
class PosteriorConfig:
    """The last layer's posterior. With `covariance` None it is the deterministic twin: means only, no posterior."""

    covariance: CovarianceName | None = "lowrank"
    rank: int = 8
    prior_scale: float = 1.0


@dataclass(frozen=True)
class QuantileConfig:
    """`levels` midpoints of (0, 1), reconstructed as `groups` Gaussians (closed_forms.quantile_mixture).

    sigma: scale of the asymmetric Laplace likelihood; a smaller scale gives a row more weight relative to the prior.
    """

    levels: int = 100
    groups: int = 25
    bandwidth: float = 1.5
    sigma: float = 1.0
