"""What a head is made of: frozen value objects, so that a head needs nothing of the training application."""

from dataclasses import dataclass
from typing import Literal

HeadName = Literal["qr", "cr"]
CovarianceName = Literal["dense", "lowrank", "diagonal", "per-output"]


@dataclass(frozen=True)
class PosteriorConfig:
    """The last layer's posterior. `covariance` None is the deterministic twin: means only, no posterior."""

    covariance: CovarianceName | None = "lowrank"
    rank: int = 8
    prior_scale: float = 1.0


@dataclass(frozen=True)
class QuantileConfig:
    """`levels` midpoints of (0, 1), reconstructed as `groups` Gaussians (closed_forms.quantile_mixture).

    sigma: scale of the asymmetric Laplace likelihood; the smaller, the more a row weighs against the prior.
    """

    levels: int = 100
    groups: int = 25
    bandwidth: float = 1.5
    sigma: float = 1.0
