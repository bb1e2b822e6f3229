"""QR: conditional quantiles with a Variational Bayesian Last Layer, on a warped target."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ghostless.heads.bins import Bins, Floats
from ghostless.heads.calibrated_head import CalibratedHead
from ghostless.heads.calibration import Calibration, apply_map
from ghostless.heads.closed_forms import laplace
from ghostless.heads.closed_forms.quantile_mixture import QuantileMixture
from ghostless.heads.config import PosteriorConfig, QuantileConfig
from ghostless.heads.effect_variance import RowEffects
from ghostless.heads.posterior import Posterior
from ghostless.heads.predictive import KnotPredictive
from ghostless.heads.warp import Warp, even_shares


def midpoint_levels(count: int) -> Tensor:
    """kappa_j = (j + 1/2) / K, [K]."""
    return (torch.arange(count, dtype=torch.float64) + 0.5).div(count).float()


@dataclass(frozen=True)
class WarpedMixture(KnotPredictive):
    """The QR predictive distribution: a mixture in z, read at the warp's knots. F(t) = F_z(z(t)), F(t-) = F_z(z(t-)).

    Mass of the mixture beyond the data belongs to the first and the last segment with data. map_heights [J + 1], or
    None for the identity.
    """

    mixture: QuantileMixture
    warp: Warp
    map_heights: Tensor | None = None
    effects: RowEffects | None = None

    @property
    def knots(self) -> Tensor:
        return self.warp.knots

    @property
    def heights(self) -> Tensor:
        inner = self.mixture.cdf(self.warp.reading()[1:-1])
        ends = torch.zeros_like(inner[:, :1]), torch.ones_like(inner[:, :1])
        raw = torch.cat([ends[0], inner, ends[1]], -1)
        return raw if self.map_heights is None else apply_map(raw, self.map_heights)

    @property
    def logit_variance(self) -> Tensor:
        return self.mixture.s2

    def last_layer_variance(self) -> Tensor:
        """l = s^2 (sum_k y'_k dA_k)^2: A(z) = mean_g a_g Phi((z - c_g) / sd_g), y'_k the inverse warp's slope.

        The posterior is treated as one perturbation shared by all levels: level j moves by a_j eps, and y by a_j y'
        eps. y' is averaged over the spread of each component instead of taken at its centre, where it would jump.
        """
        moved = self.mixture.scaled_cdf(self.warp.z)
        return self.mixture.s2 * (moved.diff(dim=-1) @ self.warp.slopes()).square()


class QuantileHead(CalibratedHead):
    """QR: K conditional quantiles of z, trained by Theorem 1, read as a Gaussian mixture."""

    levels: Tensor
    edges: Tensor
    z: Tensor

    def __init__(
        self,
        config: QuantileConfig,
        posterior: PosteriorConfig,
        features: int,
        bins: Bins,
        z: Floats,
    ) -> None:
        """z [k] at the bins' knots: `warp.rank_warp`, or the knots themselves for quantiles in target units."""
        super().__init__()
        self.config = config
        self.register_buffer("levels", midpoint_levels(config.levels))
        self.register_buffer("edges", torch.from_numpy(bins.knots).float())
        self.register_buffer("z", torch.from_numpy(np.ascontiguousarray(z)).float())
        self.posterior = Posterior(posterior, features, config.levels, scaled=True)

    @property
    def knots(self) -> Tensor:
        return self.edges

    @property
    def warp(self) -> Warp:
        return Warp(self.edges, self.z)

    def targets(self, y: Tensor) -> Tensor:
        """z of targets y [n]: random inside an atom during training, evenly spread otherwise."""
        shares = torch.rand_like(y) if self.training else even_shares(len(y)).to(y)
        return self.warp.randomised(y, shares)

    def start_at(self, target_sample: Tensor) -> None:
        """Initialise the biases at the quantiles of the training marginal."""
        z = self.warp.randomised(target_sample, even_shares(len(target_sample)).to(target_sample))
        with torch.no_grad():
            self.posterior.bias.copy_(torch.quantile(z.double(), self.levels.double()).float())

    def spread_parameters(self) -> list[nn.Parameter]:
        return self.posterior.covariance_parameters()

    def loss(self, phi: Tensor, y: Tensor) -> Tensor:
        """Expected pinball loss averaged over levels, per row [n]: Theorem 1 without its constant."""
        delta = self.targets(y).unsqueeze(-1) - self.posterior.outputs(phi)
        if self.posterior.covariance is None:
            return torch.maximum(self.levels * delta, (self.levels - 1.0) * delta).mean(-1)
        variance = self.posterior.variance(phi)
        s = torch.sqrt(variance if variance.dim() == 2 else variance.unsqueeze(-1)) * self.posterior.scales
        return laplace.expected_pinball(delta, s, self.levels).mean(-1)

    def kl(self) -> Tensor:
        """KL term on the scale of `loss`: Theorem 1 divides the data term by sigma, and `loss` averages over levels."""
        return self.posterior.kl() * (self.config.sigma / self.config.levels)

    def mixture(self, m: Tensor, phi: Tensor) -> QuantileMixture:
        """Quantiles m [n, K] of z as a mixture in z, with the posterior's variance at phi [n, D]."""
        variance = self.posterior.variance(phi)
        if variance.dim() == 2:
            variance = variance.mean(-1)
        return QuantileMixture.from_levels(
            m, variance, self.posterior.scales, self.config.groups, self.config.bandwidth
        )

    def uncalibrated(self, phi: Tensor) -> WarpedMixture:
        """The distribution without the head's map; ensembles and pools average these."""
        return WarpedMixture(self.mixture(self.posterior.outputs(phi), phi), self.warp)

    def predict(self, phi: Tensor, effects: RowEffects | None = None) -> WarpedMixture:
        return self.read(self.posterior.outputs(phi), phi, effects)

    def read(self, m: Tensor, phi: Tensor, effects: RowEffects | None = None) -> WarpedMixture:
        """Quantiles m [n, K] of z as a distribution of the target."""
        return WarpedMixture(self.mixture(m, phi), self.warp, self.map_heights if self.has_map else None, effects)

    @torch.no_grad()
    def calibrate(self, phi: Tensor, y: Tensor) -> Calibration:
        """Fit and store the map on rows that were not used for training: phi [n, D], y [n]. QR has no temperature."""
        return self.fit_calibration(1.0, phi, y)
